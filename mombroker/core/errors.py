"""The refusals of the agent server. Each is one sentence that names the next thing to try."""

import re
from urllib.parse import unquote

SENTENCE_CHARS = 600
QUOTED_CHARS = 200  # of what was given, in a sentence that quotes it
_QUOTED = re.compile(rf"(?<!\w)'[^'\n]{{{QUOTED_CHARS},}}'(?!\w)|\S{{{QUOTED_CHARS + 1},}}")


def short(given: str) -> str:
    """What was given, as a sentence quotes it: of a long one, its ends."""
    return given if len(given) <= QUOTED_CHARS else f"{given[:120]}...{given[-40:]}"


def sentence(error: BaseException) -> str:
    """What an error of code that is not ours says, as text that can be stored, sent and printed, whatever it does."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = f"{type(error).__name__}, which cannot say more"
    return plain(text[:SENTENCE_CHARS])


def line(text: str, most: int = SENTENCE_CHARS) -> str:
    """A text that others may have a part in, as one bounded line that says nothing to a terminal."""
    short = text[: most + 1]
    if not short.isprintable():
        short = "".join([each if each.isprintable() else ascii(each)[1:-1] for each in short])
    return short if len(short) <= most else short[: most - 3] + "..."


def plain(text: str) -> str:
    """The text without what UTF-8 has no form for."""
    return text.encode("utf-8", "backslashreplace").decode()


class MomError(Exception):
    """A legal refusal. The CLI prints its sentence, in which a long word, or what is in quotes, stands with its ends
    alone, and exits with ExitCode.REFUSED.

    cause   for protocols that have a word for it: see Refused in broker/commands.py
    """

    cause = ""

    def __init__(self, text: str = ""):
        super().__init__(text if len(text) <= QUOTED_CHARS else _QUOTED.sub(lambda found: short(found[0]), text))


class TopologyError(MomError):
    """The topology file is wrong. `errors` holds one sentence per fault; the first SHOWN are its text."""

    SHOWN = 50

    def __init__(self, errors: list[str]):
        self.errors = errors
        more = len(errors) - self.SHOWN
        super().__init__("\n".join([*errors[: self.SHOWN], *([f"and {more} faults more"] if more > 0 else [])]))


class StoreError(MomError):
    """The store cannot be used: locked, of another server or order digest, newer, damaged."""


class PeerRefused(MomError):
    """This link cannot be opened: the peer is not who, or not in the state, that our store says."""

    def __init__(self, text: str):
        super().__init__(line(text))


class DeclaredLost(PeerRefused):
    """This server was declared lost: if it is the one that works here, it must stop, and promise nothing more."""

    def __init__(self, server: str):
        self.server = server
        super().__init__(
            f"{server} was declared lost, and its store is of no use any more: remove its data folder and start it, "
            "and it begins anew"
        )


class NotYet(PeerRefused):
    """One end works under other domains already, to which the other one is about to change: nothing is wrong."""


class Switched(NotYet):
    """That end is the peer."""


class PeerError(MomError):
    """The peer sent bytes that break the protocol; its link is closed and counted."""

    def __init__(self, text: str):
        super().__init__(line(text))


class NoRoute(MomError):
    """The server that something is for is not on this bus, or not any more."""


KINDS = {  # of what has a name with this before a colon, as an operator calls it and asks for it
    "queue": ("queue", "queue"), "sub": ("subscription", "subscription"),
    "share": ("shared subscription", "subscription"), "topic": ("topic", "topic"), "group": ("group", "group"),
}  # fmt: skip


class UnknownName(MomError):
    """A reaction sent to a name that this server does not know yet; the reaction is repeated once it knows the name."""

    def __init__(self, name: str):
        self.name = name
        kind, _, own = name.partition(":")
        what, noun = KINDS.get(kind, ("agent", "agent"))
        client, colon, called = own.partition(":") if kind in ("sub", "share") else ("", "", "")
        shown = unquote(called if colon else own if kind in KINDS else name)
        whose = f" of client {short(unquote(client))!r}" if colon and client else ""
        super().__init__(f"no {what} is named {short(shown)!r}{whose} on this bus yet: see `mom {noun} list`")


class NoProgram(MomError):
    """The class of an agent cannot be imported, or does not fit its state: its messages wait until it can."""

    def __init__(self, path: str, reason: str):
        self.path, self.reason = path, reason
        super().__init__(f"{path} {reason}")


class UnknownNotification(MomError):
    """No class is registered under the type name on the wire, or the agent has no reaction to it, or it cannot be read.

    A native agent or handler raises it before anything has changed.
    """

    def __init__(self, text: str):
        super().__init__(line(text))


class Overloaded(MomError):
    """The server takes no more work from outside: its store has reached `max_store`."""


class StoreFailed(Exception):
    """A commit failed: nothing of its batch may leave. The process must stop (exit 3)."""
