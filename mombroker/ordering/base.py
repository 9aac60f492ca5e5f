"""The public interface of an ordering back end: one member's view of one domain, without I/O, clock or chance.

An outsider writes a class with these methods and registers it under the entry-point group `mombroker.orderings`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

Rows = dict[tuple[int, int], bytes]  # (kind, key) -> blob
INTEGER = 4  # bytes, in `describe`
DIRECT = "all but what is for who is down, or depends on what only they have"


@dataclass(slots=True, eq=False)
class Packet:
    """What one member sends to one neighbour.

    to      the neighbour it goes to next (a member index)
    dests   the members that the message is for
    body    the message, opaque bytes
    origin  the member that first sent it
    stamp   the back end's own
    frm     the neighbour it came from, set by `decode`, or by whoever hands it to `receive` without bytes between
    note    for the caller's use; a core keeps the object, so a delivered packet still carries it
    """

    to: int
    dests: tuple[int, ...]
    body: bytes
    origin: int
    stamp: Any = None
    frm: int = -1
    note: Any = None


@dataclass(slots=True)
class Step:
    """What a core wants done, in this order: all of `send` is enqueued before any of `deliver` is handed over.

    freed   packets that were held and are no longer, but are not delivered by this step: they are parked, or were for
            others
    """

    send: list[Packet] = field(default_factory=list)
    deliver: list[Packet] = field(default_factory=list)
    freed: Sequence[Packet] = ()


class Ordering:
    """Members are indexes 0..size-1; `me` is never in dests (the engine hands local copies over), but where the back
    end says `own`.

    One multicast is one `send`. Delivery only to members in `dests`. Duplicates of anything are tolerated, also of a
    packet that is held. A delivered packet is the very object that `receive` was given (or `restore` rebuilt).
    """

    fifo: bool = False  # needs FIFO links
    relays: bool = False  # members pass on packets for others
    own: bool = False  # it delivers a member's own copies, too; see `send`
    total: bool = False  # all members deliver what they both get in one order; needs `own`
    spreads: bool = False  # messages go to members that they are not for, too: others keep them for one that is down
    prompt: bool = False  # no packet waits that causal order lets be delivered; see `free` in explore.py
    floods: bool = False  # each member passes on each message, so that it comes to others on several links
    options: tuple[str, ...] = ()  # names of the options that the topology file may set
    due: bool = False  # `announce` has something to say
    awaited: int = -1  # the member whose next packets all that is held waits for, if what is held is from it, too
    duplicates: int = 0  # packets that came again, and were dropped, since the core was made
    forgetful: bool = False  # set on a core whose rows are lost: `decode` believes what packets say that it has sent

    def __init__(self, me: int, size: int, **options: Any):
        raise TypeError("Ordering is an interface: create a back end by mombroker.ordering.create")

    @classmethod
    def validate(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> list[str]:
        """One sentence per fault of a domain's options (values as in the topology file, members by name)."""
        known = f"it has {', '.join(cls.options)}" if cls.options else "this back end has none"
        return [f"unknown option {name!r}: {known}; take it out" for name in options if name not in cls.options]

    @classmethod
    def resolve(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """The options of the file turned into those of `__init__` (member names become indexes)."""
        return dict(options)

    @classmethod
    def anew(cls, size: int, options: Mapping[str, Any], times: int) -> dict[str, Any]:
        """The options of `__init__` in a domain of `size` members that has begun anew so many times, since the store of
        one was lost: what one member begins with begins with another one each time."""
        return dict(options)

    @classmethod
    def describe(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """What a domain costs and stands, for `mom topology show`; the options are valid, as in the topology file.

        links           of a member: to how many others, [least, most]
        diameter        hops between the farthest members
        relays          members that pass on packets for others
        packets         on links, for a message to one member, and `packets_to_all`
        control_bytes   on one packet under the back end's typical traffic, and `control_bytes_worst`: the formulas of
                        docs/orderings.md at four bytes an integer; None where nobody has said
        survives        what goes on while a member is down
        """
        others = len(members) - 1
        return {
            "links": [others, others], "diameter": 1, "relays": list(members) if cls.relays else [], "packets": 1,
            "packets_to_all": others, "control_bytes": None, "control_bytes_worst": None,
            "survives": "" if cls.relays else DIRECT,
        }  # fmt: skip

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        """Stamp one message for `dests`; never delivers.

        With `own`, `me` may be among `dests`: the local copy is delivered by `receive`, in its turn, perhaps late.
        What a core addresses to `me` comes back to `receive(me, packet)` in the same transaction, and is delivered
        then, or held; any other copy of mine comes back from a neighbour. Until it is delivered, what is only for local
        agents is sent to `me` alone, so that it cannot overtake.
        """
        raise NotImplementedError

    def receive(self, frm: int, packet: Packet) -> Step:
        """A packet from neighbour `frm`: what to pass on, and what may now be delivered.

        Raises ValueError, before anything changes, for a packet that an honest neighbour would not send now.
        """
        raise NotImplementedError

    def announce(self) -> list[Packet]:
        """Packets without a body that tell others once of all steps of a batch: asked for at its end, before `dirty`,
        in the same transaction."""
        return []

    def held(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        """Packets that wait, each with the (origin, sequence) pairs of the messages that it waits for."""
        raise NotImplementedError

    def missing(self, packet: Packet) -> list[tuple[int, int]] | None:
        """What this one packet waits for, or None if it is not held. Override it where a scan of `held` is slow."""
        for held, pairs in self.held():
            if held is packet:
                return pairs
        return None

    def parked(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        """Packets that are in order and wait to be passed on (and to be delivered here, if they are not), each with
        the (member, sequence) pairs of the acknowledgements that it waits for."""
        return []

    def token(self) -> int:
        """The member that numbers the messages of all, as far as this one knows; -1 where none does."""
        return -1

    def reach(self, without: Collection[int]) -> set[int]:
        """Where members pass on for others: those that have what this one has sent, or passed on, though some have not
        passed it on, since they are lost."""
        return set()

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        """Rows to put and rows to delete since the last call; held packets are among them."""
        raise NotImplementedError

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> Self:
        """The core whose `dirty` rows, all applied, are `rows`."""
        raise NotImplementedError

    def encode(self, packet: Packet) -> bytes:
        raise NotImplementedError

    def decode(self, frm: int, data: bytes) -> Packet:
        """Raises ValueError for bytes that no member sends."""
        raise NotImplementedError

    def control_ints(self, packet: Packet) -> int:
        """Control integers on this packet, in the papers' measure."""
        raise NotImplementedError

    def check(self) -> None:
        """Asserts the numbered invariants of the class; the simulator calls it after every step."""
