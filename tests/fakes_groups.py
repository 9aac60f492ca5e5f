"""Groups that are broken on purpose: each must be caught by what the simulator's agents have seen."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mombroker.broker.groups.copies import Copies
from mombroker.broker.groups.deeds import Deeds
from mombroker.broker.groups.members import Members
from mombroker.broker.groups.outbox import Outboxes
from mombroker.broker.shapes import LAST
from mombroker.core.groups.home import Home
from mombroker.core.groups.member import Member


def no_flush(home: Home) -> None:
    """The home installs a view at once."""
    home._install()


def no_wait(cast: Any) -> Any:
    """A member sends on before the home has placed its cast."""

    def casts(deeds: Deeds, *args: Any) -> bool | None:
        done: bool | None = cast(deeds, *args)
        return True if done is None else done

    return casts


def not_inhibited(prepare: Any) -> Any:
    """A member that has flushed casts on."""

    def prepares(member: Member, *args: Any) -> Any:
        told = prepare(member, *args)
        member.inhibited = False
        return told

    return prepares


def no_wait_for_state(deeds: Deeds, agent: str, message: Any) -> bool:
    """A new member begins before it has the state of others."""
    return True


def patient(members: Members, message: Any) -> None:
    """Members wait for each other's states, whoever waits already."""


def unnumbered(placed: Any) -> Any:
    """The home's word that something has its place stands for whatever was asked for first."""
    return lambda outboxes, agent, number: placed(outboxes, agent, LAST)


def not_barred(prepare: Any) -> Any:
    """What comes of a member that is out is delivered on, behind the FLUSH that has counted it."""

    def prepares(member: Member, number: int, out: list[str]) -> Any:
        told = prepare(member, number, out)
        member.barred = []
        return told

    return prepares


def without_copies(copies: Copies, group: str, sender: str, seq: int, payload: bytes) -> None:
    """A server keeps none of what its members cast: who is out of a view gets nothing back."""


def asked_once(ask: Any) -> Any:
    """When one more is out while a view is made, the others' FLUSHes of before count: what they had of this one by then
    was not asked for."""

    def asks(home: Home) -> None:
        change = home.change
        if change is None or not change.attempt:
            ask(home)
            return
        change.waits = [server for server in change.waits if any(
            home.where(agent) == server for agent in home.members if agent not in change.out
        )]  # fmt: skip
        if not change.waits:
            home._install()

    return asks


CONTROLS: dict[str, tuple[type, str, Any]] = {
    "no flush": (Home, "_ask", no_flush),
    "no wait": (Deeds, "_cast", no_wait(Deeds._cast)),
    "not inhibited": (Member, "prepare", not_inhibited(Member.prepare)),
    "no wait for a state": (Deeds, "meets", no_wait_for_state),
    "waits in a circle": (Members, "_gives_up", patient),
    "a place without a number": (Outboxes, "placed", unnumbered(Outboxes.placed)),
    "install without copies": (Copies, "add", without_copies),
    "asked once": (Home, "_ask", asked_once(Home._ask)),
    "not barred": (Member, "prepare", not_barred(Member.prepare)),
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    cls, method, variant = CONTROLS[name]
    right = getattr(cls, method)
    setattr(cls, method, variant)
    try:
        yield
    finally:
        setattr(cls, method, right)
