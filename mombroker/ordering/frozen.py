"""Dataclasses of plain values as JSON text and back, checked against their annotations: for what changes seldom and
need not be small."""

import json
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

LEAST, MOST = -(1 << 62), 1 << 62  # of a number


def freeze(value: Any) -> bytes:
    """Equal values give equal bytes, but for the order of dicts, which is kept."""
    return json.dumps(_plain(value), separators=(",", ":")).encode()


def thaw(data: bytes, kind: Any, classes: Collection[type] = ()) -> Any:
    """What was frozen, of this type; Any stands for None or one of `classes`. Raises ValueError for anything else."""
    try:
        return _back(json.loads(data), kind, {cls.__name__: cls for cls in classes})
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"no frozen {kind}: {error!r}") from None


def _plain(value: Any) -> Any:
    """A dataclass becomes a list that begins with its name."""
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(each)] for key, each in value.items()]
    if isinstance(value, set | frozenset):
        return [_plain(each) for each in sorted(value)]
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    assert is_dataclass(value), f"cannot freeze {value!r}"
    return [type(value).__name__, *(_plain(getattr(value, each.name)) for each in fields(value))]


def _back(value: Any, kind: Any, known: Mapping[str, type]) -> Any:
    args = get_args(kind)
    origin = get_origin(kind) or kind
    if origin is UnionType:
        return None if value is None and NoneType in args else _back(value, args[0], known)
    if kind is Any:
        return None if value is None else _back(value, known[value[0]], known)
    if kind is bytes:
        return _expect(value, str).encode("latin-1")
    if kind in (int, bool):
        if not LEAST < _expect(value, kind) < MOST:
            raise ValueError(f"no number of anything: {value}")
        return value
    _expect(value, list)
    if is_dataclass(kind):
        name, *values = value
        if name != kind.__name__:
            raise ValueError(f"no {kind.__name__}: {name!r}")
        return kind(*(_back(each, hint, known) for each, hint in zip(values, _hints(kind), strict=True)))
    if origin is tuple and args[-1] is not ...:
        return tuple(_back(each, arg, known) for each, arg in zip(value, args, strict=True))
    if issubclass(origin, Mapping):
        return {_back(key, args[0], known): _back(each, args[1], known) for key, each in value}
    return origin(_back(each, args[0], known) for each in value)


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"no {kind.__name__}: {value!r}")
    return value


@cache
def _hints(kind: type) -> list[Any]:
    hints = get_type_hints(kind)
    return [hints[each.name] for each in fields(kind)]
