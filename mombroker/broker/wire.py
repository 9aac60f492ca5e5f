"""What native agents send each other as objects on one server, and packed between servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import msgpack

from mombroker.broker.shapes import Shape
from mombroker.core.errors import UnknownNotification
from mombroker.core.message import Message

KINDS: dict[str, type[Note]] = {}
pack = msgpack.Packer().pack
NOTHING: dict[str, str] = {}


def unpack(data: bytes) -> Any:
    """What a client has packed. Raises ValueError."""
    try:
        return msgpack.unpackb(data)
    except (msgpack.UnpackException, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def array(count: int) -> bytes:
    """What an array of so many values begins with."""
    return bytes(pack([None] * count)[:-count])


class Shapes(dict[type[Any], Shape]):
    """That of each class, made when it is first needed."""

    def __missing__(self, cls: type[Any]) -> Shape:
        made = self[cls] = Shape(cls)
        return made


SHAPES = Shapes()


class Note:
    """Base of the types below. `wire` is the type's name on the bus."""

    __slots__ = ()
    wire: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.wire:
            KINDS[cls.wire] = cls

    @property
    def size(self) -> int:
        """Payload bytes, for limits and the log."""
        return 0

    def values(self) -> Sequence[Any]:
        return SHAPES[type(self)].values(self)

    def pack(self) -> bytes:
        packed: bytes = pack(self.values())
        return packed

    @classmethod
    def unpack(cls, payload: bytes) -> Self:
        """Fields may be added at the end, with defaults: older senders leave them out, older receivers ignore them.
        Raises ValueError for what is not of the types below: it comes from another server, of whatever version."""
        try:
            return cls.of(msgpack.unpackb(payload, strict_map_key=False))
        except TypeError as error:  # a map whose keys are lists
            raise ValueError(str(error)) from None

    @classmethod
    def of(cls, values: Any) -> Self:
        return cls(*SHAPES[cls].read(values))


def note_of(message: Message) -> Any:
    """The note that a message brings. Raises UnknownNotification."""
    if message.note is not None:
        return message.note
    kind = KINDS.get(message.type)
    if kind is None:
        raise UnknownNotification(f"no traffic of destinations is called {message.type!r}")
    try:
        note = kind.unpack(message.payload)
    except ValueError as error:
        raise UnknownNotification(f"{message.type} came with fields that do not fit: {error}") from None
    if message.data:  # it need not be packed again
        message.note = note
    return note
