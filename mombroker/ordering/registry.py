"""The back ends by name: those of this package and those that others have registered, loaded when first used."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from mombroker.core.errors import MomError
from mombroker.ordering.base import Ordering, Rows

GROUP = "mombroker.orderings"  # the entry-point group of other packages
BUILT_IN = {
    "matrix": "Matrix",
    "rst": "RST",
    "ks": "KS",
    "vector": "Vector",
    "overlay": "Overlay",
    "daisy": "Daisy",
    "abcast": "Abcast",
    "fifo": "Fifo",
}  # name -> class in the module of that name


def names() -> list[str]:
    """The back ends that can be chosen."""
    return sorted({name for name in BUILT_IN if _present(name)} | _plugged().keys())


def backend(name: str) -> type[Ordering]:
    """The class of a back end. Raises MomError that names the known ones, or says why a plug-in does not load."""
    if name in BUILT_IN and _present(name):
        module, attribute = _module(name), BUILT_IN[name]
    elif name in _plugged():
        module, attribute = _plugged()[name].module, _plugged()[name].attr
    else:
        raise MomError(f"no ordering back end is named {name!r}: choose one of {', '.join(names())}")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise MomError(f"ordering back end {name!r} does not load: {error}; install its package again") from error
    if not (isinstance(found, type) and issubclass(found, Ordering)):
        raise MomError(f"ordering back end {name!r} is no subclass of mombroker.ordering.Ordering")
    return found


def resolved(name: str, members: tuple[str, ...], options: Mapping[str, Any], times: int = 0) -> dict[str, Any]:
    """The options of a core of a domain that has begun anew so many times, from those of the topology file."""
    chosen = backend(name)
    return chosen.anew(len(members), chosen.resolve(members, options), times)


def create(name: str, /, me: int, size: int, **options: Any) -> Ordering:
    """The core of member `me` of a new domain of `size` members."""
    return backend(name)(me, size, **options)


def restore(name: str, /, me: int, size: int, rows: Rows, **options: Any) -> Ordering:
    """The core whose `dirty` rows, all applied, are `rows`; no rows at all make a new one."""
    return backend(name).restore(me, size, rows, **options)


def _module(name: str) -> str:
    return f"mombroker.ordering.{name}"


@cache
def _present(name: str) -> bool:
    return find_spec(_module(name)) is not None


@cache
def _plugged() -> dict[str, EntryPoint]:
    """A plug-in cannot take the name of a built-in back end."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in BUILT_IN}
