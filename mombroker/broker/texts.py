"""Values as text: for protocols that have nothing else. A header of ours names the types of those that are no text."""

from __future__ import annotations

import math
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import lru_cache

from mombroker.broker.properties import BIT63, TEXT, Value

Plain = str | bool | int | float
MAX_REMEMBERED = 1_000  # characters of such a header; longer ones are parsed each time

TYPES = "property-types"  # size=int,new=bool,rate=float
_BOOLEANS = {"true": True, "false": False}
_NAMES = {bool: "bool", int: "int", float: "float", bytes: "bytes", type(None): "null"}
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,40}\.[0-9]{0,40}|\.[0-9]{1,40}|[0-9]{1,40})(?:[eE][+-]?[0-9]{1,4})?")


def to_headers(properties: Mapping[str, Value]) -> dict[str, str]:
    """The headers for these properties."""
    if TEXT.issuperset(map(type, properties.values())):
        return dict(properties)  # type: ignore[arg-type]
    headers = {name: text_of(value) for name, value in properties.items()}
    types = [f"{name}={_NAMES[type(value)]}" for name, value in properties.items() if type(value) is not str]
    if types:
        headers[TYPES] = ",".join(types)
    return headers


def text_of(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return "" if value is None else str(value)


def plain(properties: Mapping[str, Value]) -> dict[str, Value]:
    """The same for JSON, which has neither bytes nor all floats."""
    odd = {name: text_of(value) for name, value in properties.items() if _is_odd(value)}
    return {**properties, **odd}


def _is_odd(value: Value) -> bool:
    return isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value))


def types_of(header: str) -> dict[str, str]:
    """Name -> type."""
    return _remembered(header) if len(header) <= MAX_REMEMBERED else _types(header)


def _types(header: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in header.split(",") if "=" in part)


_remembered = lru_cache(1_000)(_types)


def typed(text: str, kind: str | None, guess: bool) -> Value:
    """The value of a property that may have a kind; `guess`: one without is what it looks like."""
    if kind == "bytes":
        try:
            return b64decode(text, validate=True)
        except ValueError:
            return text
    if kind == "null" and not text:
        return None
    if kind:
        return value_of(text, kind)
    return guessed(text) if guess else text


def value_of(text: str, kind: str | None) -> Plain:
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


def guessed(text: str) -> Plain:
    """A boolean or a number, if the text looks like one."""
    value = boolean(text)
    if value is None:
        number = number_of(text)
        return text if number is None else number
    return value


def boolean(text: str) -> bool | None:
    """True or false, in whatever case it is written; None for another text."""
    return _BOOLEANS.get(text.strip(" ").lower())


def number_of(text: str) -> int | float | None:
    """The number that a text says; None if it says none."""
    if _INTEGER.fullmatch(text) and -BIT63 <= int(text) < BIT63:
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else None
