"""A client's message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from mombroker.broker.shapes import LOCAL, Count, Time, Within
from mombroker.broker.wire import Note, shape


@dataclass(slots=True)
class ClientMessage(Note):
    """A client's message. Times are wall-clock ns, 0 = none.

    This list of fields is all that the bus and the rows of queues know of a message: one that is added at its end, with
    a default, travels and is stored like the others.

    producer, counter   name this message for ever, whatever connection repeats it
    sender    the client id, or connection, that it came by: for no-local
    message   its id; empty: that of the bus message
    """

    wire = "q.put"
    destination: str
    shown: str
    headers: bytes
    priority: Annotated[int, Within(0, 9)] = 4
    timestamp: Count = 0
    expires: Time = 0
    due: Time = 0  # not to be delivered before
    persistent: bool = True
    kind: str = "bytes"
    group: str = ""
    group_seq: int = 0
    producer: str = ""
    counter: Count = 0
    sender: str = ""
    message: str = ""
    typed: bool = False  # for selectors, headers that look like numbers or booleans are
    properties: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    reserved: bool = field(default=False, init=False, metadata=LOCAL)  # the queue expects it

    @property
    def size(self) -> int:
        return len(self.headers) + len(self.body)

    def values(self) -> list[Any]:
        return list(_values(self))

    def copy(self) -> ClientMessage:
        return ClientMessage(*_values(self))

    @classmethod
    def of_row(cls, values: list[Any], body: bytes) -> ClientMessage:
        """Older rows leave out the last fields, newer ones may have more."""
        return cls(*[*values[:BODY], body, *values[BODY : len(PUT) - 1]])


PUT = shape(ClientMessage).names
BODY = PUT.index("body")


def _fields(*names: str) -> Callable[[ClientMessage], tuple[Any, ...]]:
    """These fields of a message as a tuple: code made from the list, in a third of the time of an attrgetter."""
    made: Callable[[ClientMessage], tuple[Any, ...]] = eval(
        f"lambda put: ({', '.join(f'put.{name}' for name in names)})"
    )
    return made


_values = _fields(*PUT)
row_of = _fields(*(name for name in PUT if name != "body"))  # that has its own place
