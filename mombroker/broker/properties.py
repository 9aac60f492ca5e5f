"""Typed properties over text headers: one header of ours names the types of those that are not text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

Value = str | bool | int | float

MAX_REMEMBERED = 1_000  # characters of such a header; longer ones are parsed each time
BIT63 = 1 << 63  # a property is a whole number of 64 bits, or a float

TYPES = "property-types"  # size=int,new=bool,rate=float
_BOOLEANS = {"true": True, "false": False}
_NAMES = {bool: "bool", int: "int", float: "float"}


def to_headers(properties: Mapping[str, Value]) -> dict[str, str]:
    """The headers for these properties."""
    headers, types = {}, []
    for name, value in properties.items():
        headers[name] = str(value).lower() if isinstance(value, bool) else str(value)
        if not isinstance(value, str):
            types.append(f"{name}={_NAMES[type(value)]}")
    if types:
        headers[TYPES] = ",".join(types)
    return headers


def types_of(header: str) -> dict[str, str]:
    """Name -> type."""
    return _remembered(header) if len(header) <= MAX_REMEMBERED else _types(header)


def _types(header: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in header.split(",") if "=" in part)


_remembered = lru_cache(1_000)(_types)


def value_of(text: str, kind: str | None) -> Value:
    """The value of a property; of one that is not what its type says, the text."""
    try:
        if kind == "int":
            number = int(text)
            return number if -BIT63 <= number < BIT63 else text
        if kind == "float":
            return float(text)
    except ValueError:
        return text
    value = boolean(text) if kind == "bool" else None
    return text if value is None else value


def boolean(text: str) -> bool | None:
    """True or false, in whatever case it is written; None for another text."""
    return _BOOLEANS.get(text.strip(" ").lower())
