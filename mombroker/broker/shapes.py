"""The shape of a dataclass, made from its annotations once: to check and read plain values that others have packed.

A list becomes a tuple where the annotation says so, a list of values an object of a class that is read alike.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import partial
from typing import Annotated, Any, NamedTuple

from mombroker.core import times

Reader = Callable[[Any], Any]  # of one value; raises ValueError
LAST = (1 << 63) - 1  # what a row can hold


class Read(NamedTuple):
    """An annotation of bytes: what reads them, or raises ValueError; not asked of none."""

    by: Reader


class Within(NamedTuple):
    """An annotation of an int: from `least` to `most`."""

    least: int
    most: int


ANY = Within(-LAST - 1, LAST)
Count = Annotated[int, Within(0, LAST)]  # also of rows, and what else is numbered
Time = Annotated[int, Within(0, times.LAST_NS)]
LOCAL = {"local": True}  # metadata of a field that never leaves its server; such fields come last


class Shape:
    """`values` are the fields of an object, in their order.

    1. `kinds` are the exact types of the fields, if each has one. Then `ranges` are of the integers, and `deep`
    the fields that hold others, if only packed: most notes are read by these alone.
    """

    __slots__ = ("names", "values", "least", "readers", "kinds", "ranges", "deep")

    def __init__(self, cls: Any):
        hints = typing.get_type_hints(cls, include_extras=True)
        sent = [field for field in fields(cls) if not field.metadata.get("local")]
        self.names = [field.name for field in sent]
        self.values = getter(*self.names)
        self.least = sum(field.default is MISSING and field.default_factory is MISSING for field in sent)
        self.readers = [reader_of(hints[name]) for name in self.names]
        kinds = [_kind(hints[name]) for name in self.names]
        self.kinds = tuple(kinds) if all(kinds) else None
        self.ranges = [(at, *_range(hints[name])) for at, name in enumerate(self.names) if kinds[at] is int]
        read = [type(_note(hints[name])) is Read for name in self.names]
        self.deep = [at for at, kind in enumerate(kinds) if kind in (list, dict) or read[at]]

    def read(self, values: Any) -> list[Any]:
        """The fields, those at the end perhaps left out, and unknown ones behind them dropped. Raises ValueError."""
        if type(values) is not list:
            raise ValueError(f"{shown(values)} is no list of fields")
        if tuple(map(type, values)) == self.kinds:
            found = values
            for at, least, most in self.ranges:
                if not least <= found[at] <= most:
                    self._read(at, found)
            for at in self.deep:
                if found[at]:
                    self._read(at, found)
            return found
        found = values[: len(self.names)]
        if len(found) < self.least:
            raise ValueError(f"{len(found)} fields, and {self.least} are needed")
        for at in range(len(found)):
            self._read(at, found)
        return found

    def _read(self, at: int, found: list[Any]) -> None:
        try:
            found[at] = self.readers[at](found[at])
        except ValueError as error:
            raise ValueError(f"{self.names[at]}: {error}") from None


def _kind(hint: Any) -> type | None:
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    kind = typing.get_origin(hint) or hint
    return kind if kind in (bool, int, str, bytes, list, dict) else None


def _note(hint: Any) -> Any:
    """What an annotation says beside the type."""
    return typing.get_args(hint)[1] if typing.get_origin(hint) is Annotated else None


def _range(hint: Any) -> Within:
    return _note(hint) or ANY


def getter(*names: str) -> Callable[[Any], tuple[Any, ...]]:
    """These attributes as a tuple: code made from the list, in a third of the time of an attrgetter."""
    made: Callable[[Any], tuple[Any, ...]] = eval(f"lambda each: ({''.join(f'each.{name}, ' for name in names)})")
    return made


def reader_of(hint: Any) -> Reader:
    """For the annotations that notes have: plain types, lists, tuples, dicts, X | None, classes with `of`, Any."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return args[1].by if isinstance(args[1], Read) else partial(_integer, args[1])
    if hint is int:
        return partial(_integer, ANY)
    if hint in (bool, str, bytes):
        return partial(_plain, hint)
    if origin is list:
        return partial(_list, reader_of(args[0]))
    if origin is tuple:
        return partial(_tuple, [reader_of(each) for each in args])
    if origin is dict:
        return partial(_dict, reader_of(args[0]), reader_of(args[1]))
    if origin in (typing.Union, types.UnionType):
        (inner,) = (each for each in args if each is not type(None))
        return partial(_optional, reader_of(inner))
    if hint is Any:
        return _any
    of: Reader = hint.of
    return of


def _integer(within: Within, value: Any) -> int:
    if type(value) is not int or not within.least <= value <= within.most:
        raise ValueError(f"{shown(value)} is no whole number from {within.least} to {within.most}")
    return value


def _plain(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{shown(value)} is no {kind.__name__}")
    return value


def _list(inner: Reader, value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError(f"{shown(value)} is no list")
    return [inner(each) for each in value]


def _tuple(inner: list[Reader], value: Any) -> tuple[Any, ...]:
    if type(value) is not list or len(value) != len(inner):
        raise ValueError(f"{shown(value)} is no list of {len(inner)}")
    return tuple(read(each) for read, each in zip(inner, value, strict=True))


def _dict(keys: Reader, values: Reader, value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise ValueError(f"{shown(value)} is no map")
    return {keys(key): values(each) for key, each in value.items()}


def _optional(inner: Reader, value: Any) -> Any:
    return None if value is None else inner(value)


def _any(value: Any) -> Any:
    return value


def shown(value: Any) -> str:
    """A little of it: it may be very large, or very deep."""
    if isinstance(value, str | bytes):
        return repr(value[:40])
    return str(value) if isinstance(value, bool | int | float | None) else type(value).__name__
