"""Dataclasses of plain values as JSON text and back, checked against their annotations: for what changes seldom and
need not be small."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

LEAST, MOST = -(1 << 62), 1 << 62  # of a number

Reader = Callable[[Any], Any]


def pack(value: Any) -> bytes:
    """Equal values give equal bytes, but for the order of dicts, which is kept."""
    return json.dumps(_plain(value), separators=(",", ":")).encode()


def unpack(data: bytes, kind: Any, classes: tuple[type, ...] = ()) -> Any:
    """What was packed, of this type; Any stands for None or one of `classes`. Raises ValueError for anything else."""
    try:
        return _reader(kind, classes)(json.loads(data))
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"no packed {kind}: {error!r}") from None


def _plain(value: Any) -> Any:
    """A dataclass becomes a list that begins with its name."""
    kind: Any = type(value)
    if kind is int or kind is str or kind is bool or value is None:
        return value
    if kind is bytes:
        return value.decode("latin-1")
    if kind is tuple or kind is list:
        return [*map(_plain, value)]
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(each)] for key, each in value.items()]
    if isinstance(value, set | frozenset):
        return [*map(_plain, sorted(value))]
    assert is_dataclass(value), f"cannot pack {value!r}"
    return [kind.__name__, *(_plain(getattr(value, each)) for each in _names(kind))]


@cache
def _reader(kind: Any, classes: tuple[type, ...]) -> Reader:
    """What reads the plain form of a type."""
    args = get_args(kind)
    origin: Any = get_origin(kind) or kind
    if kind is Any:
        known = {cls.__name__: cls for cls in classes}
        return lambda value: None if value is None else _reader(known[value[0]], classes)(value)
    if origin is UnionType:
        assert args[1] is NoneType, f"cannot unpack {kind}"
        some = _reader(args[0], classes)
        return lambda value: None if value is None else some(value)
    if kind is bytes:
        return lambda value: _expect(value, str).encode("latin-1")
    if kind is int:
        return _number
    if kind is bool:
        return lambda value: _expect(value, bool)
    if is_dataclass(kind):
        return _dataclass_reader(origin, classes)
    if origin is tuple and args[-1] is not ...:
        parts = [_reader(arg, classes) for arg in args]
        return lambda value: tuple([part(each) for part, each in zip(parts, _expect(value, list), strict=True)])
    if issubclass(origin, Mapping):
        a, b = (_reader(arg, classes) for arg in args)
        return lambda value: {a(key): b(each) for key, each in _expect(value, list)}
    item = _reader(args[0], classes)
    return lambda value: origin(map(item, _expect(value, list)))


def _dataclass_reader(kind: Any, classes: tuple[type, ...]) -> Reader:
    hints = get_type_hints(kind)
    parts = [_reader(hints[each], classes) for each in _names(kind)]

    def read(value: Any) -> Any:
        name, *values = _expect(value, list)
        if name != kind.__name__:
            raise ValueError(f"no {kind.__name__}: {name!r}")
        return kind(*[part(each) for part, each in zip(parts, values, strict=True)])

    return read


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"no {kind.__name__}: {value!r}")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not LEAST < value < MOST:
        raise ValueError(f"no number of anything: {value!r}")
    return value


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))
