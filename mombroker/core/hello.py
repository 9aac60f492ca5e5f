"""Hello: what the two ends of a link tell each other before frames flow, by name; the fields and how they are read."""

from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from mombroker.core.errors import PeerError

LARGEST = (1 << 63) - 1


@dataclass(slots=True)
class Hello:
    """One end of a link, from committed state only (protocols §0.5).

    A field without a default must be there; one that comes later gets a default, and older servers ignore it.
    """

    server: str
    incarnation: str  # of its store
    domain: str  # the one that both share
    digest: str  # of that domain's order
    epoch: int  # of that domain's clocks
    graph: str  # digest of the server-domain graph
    revision: int  # of the topology; 0: that of a file, by which older servers go
    term: int  # of the leader of a replicated server; 0: it has no replicas
    sent: int
    acked: int
    received: int
    limit: int
    order: str = ""  # of that domain, to tell what differs: JSON; empty if it is long
    fenced: int = 0  # the receiver was declared lost: its clocks are of no use below this epoch

    def values(self) -> dict[str, Any]:
        return asdict(self)


def hello_of(values: dict[Any, Any], peer: str) -> Hello:
    """The hello of `peer`; unknown fields are ignored. Raises PeerError for known ones that are missing or wrong."""
    found = {}
    for each in fields(Hello):
        name = each.name
        if name in values:
            found[name] = value = values[name]
            if type(value) is not each.type:
                raise PeerError(f"the hello of {peer} has a wrong value in field {name}")
            if type(value) is int and not 0 <= value <= LARGEST:
                raise PeerError(f"the hello of {peer} has a number out of range in field {name}")
        elif each.default is MISSING:
            raise PeerError(f"the hello of {peer} lacks the field {name}")
    hello = Hello(**found)
    if hello.server != peer:
        raise PeerError(f"the hello of {peer} names {hello.server}")
    return hello
