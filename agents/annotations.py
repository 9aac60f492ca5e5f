"""Whether plain values are what the annotations of a class say; for those who write them from outside the program."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mombroker.core.errors import MomError

SHOWN_CHARS = 40  # of a value, in a refusal


@lru_cache(1_000)
def hints_of(cls: type) -> dict[str, Any]:
    """The annotations of a class by name; of one that cannot be read, none."""
    try:
        return typing.get_type_hints(cls)
    except Exception:  # an annotation is an expression of the author's, and need not hold outside of a type checker
        return {}


def typed(cls: type, values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`values` of fields of `cls`, each of its annotated type; for bytes, text stands for its UTF-8.

    Raises MomError that names the first that does not fit, as a field of `name`.
    """
    hints, found = hints_of(cls), {}
    for field, value in values.items():
        hint = hints.get(field, Any)
        if not fits(value, hint):
            if not (isinstance(value, str) and fits(b"", hint)):
                raise MomError(f"{field} of {name} must be {word(hint)}, not {shown(value)}{_remedy(value, hint)}")
            value = value.encode()
        found[field] = value
    return found


def fits(value: Any, hint: Any) -> bool:
    """True if the value is of the annotated type, as far as that can be said; whole numbers are floats, too."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, each) for each in args)
    if origin is typing.Literal:
        return any(type(value) is type(each) and value == each for each in args)
    if origin is typing.Annotated:
        return fits(value, args[0])
    if hint is None or hint is type(None):
        return value is None
    if hint is float:
        return type(value) in (int, float)
    kind = origin or hint
    if kind in (bool, int, str, bytes):
        return type(value) is kind
    if kind is list:
        return type(value) is list and all(fits(each, args[0]) for each in value if args)
    if kind is dict:
        return type(value) is dict and all(fits(k, args[0]) and fits(v, args[1]) for k, v in value.items() if args)
    return True


def word(hint: Any) -> str:
    """The annotation as its author wrote it."""
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def shown(value: Any) -> str:
    """A little of it, for a refusal."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 3] + "..."


def _remedy(value: Any, hint: Any) -> str:
    """`mom agent send` reads what looks like JSON as such."""
    return f"""; as text it is written '"{value}"'""" if type(value) in (int, float) and fits("", hint) else ""
