"""Names and ids: text without line breaks, so that they need no escape on the wire or in a log.

An agent's id starts with its first home: `lyon/greeter` was declared under that name, `lyon/paris/17` was the
17th agent that server `paris` created. A name without a slash is resolved by the bus (`greeter`). An agent that has
moved keeps its id; what is sent to it bears its address, `nancy//lyon/greeter` (homes.py).
"""

import re

from mombroker.core.errors import MomError, plain

SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
AGENT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}")
OURS = ("queue:", "sub:", "share:", "topic:", "group:", "conn:", "reply:")  # of what the broker keeps, and answers


ADDRESS_CHARS = 512  # that authors and operators may write
ID_CHARS = 16 * 1024  # of any id: names of destinations are written in escapes


def check_address(text: str) -> None:
    """Raises MomError for what can be neither the id nor the name of an agent, since it would not survive the wire."""
    if len(text) > ADDRESS_CHARS or "\n" in text or plain(text) != text:
        raise MomError(
            f"{ascii(text[:64])} cannot be an agent's id or name: one line of up to {ADDRESS_CHARS} characters"
        )
    if text.startswith("/"):
        raise not_an_agent(text)


def not_an_agent(destination: str) -> MomError:
    """What to tell whoever sends a notification to a queue or topic."""
    return MomError(
        f"{destination!r} is a destination of clients, and notifications go to agents: name one, as 'greeter', or give "
        "its id, as 'lyon/greeter'; a message for a queue or topic is sent by `mom send`, or by mombroker.jms in a "
        "deferred function"
    )


def home_of(agent: str) -> str:
    """The server that an address leads to; of an id the first home, where the agent lives unless it has moved."""
    return agent[: agent.index("/")]


def address_at(server: str, id: str) -> str:
    """Where an agent is found that lives on another server than its id names."""
    return f"{server}//{id}"


def identity(address: str) -> str:
    """The id of the agent at an address; an id is one itself."""
    _, _, rest = address.partition("/")
    return rest[1:] if rest[:1] == "/" else address


def declared_id(server: str, name: str) -> str:
    return f"{server}/{name}"


def created_id(home: str, creator: str, number: int) -> str:
    return f"{home}/{creator}/{number}"


def is_id(text: str) -> bool:
    """True for an agent id, False for a bare name."""
    return "/" in text
