"""What a packet that goes through several members says on its outside: origin, number, destinations; as bytes."""

from functools import lru_cache
from struct import Struct, error

from mombroker.ordering.wire import CODES, WIDTHS, layout, width_of

Envelope = tuple[int, int, tuple[int, ...], int, int]  # flags, number, destinations, origin, where the rest begins

# The first byte: two bits for the width of the number, one for that of member indexes, two for the form of the
# destinations; the others are the back end's.
WIDE, ONE, LIST, BITMAP, ALL = 4, 0, 8, 16, 24
FLAG = 32  # the lowest flag that a back end may set
LIMIT = 1 << 47  # of a number: 400 years of 10,000 messages a second
MOST = 1 << 16  # members


@lru_cache(4096)
def fold(origin: int, dests: tuple[int, ...]) -> tuple[int, bytes]:
    """Form, and origin with destinations in the smallest form: one, all members below some index, a list, a bitmap."""
    most = max(origin, *dests)
    wide = WIDE if most > 0xFF else 0
    code = "H" if wide else "B"
    if len(dests) == 1:
        return wide | ONE, layout(2, code).pack(origin, *dests)
    if most == len(dests) == len(set(dests)):
        return wide | ALL, layout(2, code).pack(origin, most)
    bitmap = _to_bitmap(dests)
    if len(bitmap) < len(dests) * (2 if wide else 1):
        return wide | BITMAP, layout(2, code).pack(origin, len(bitmap)) + bitmap
    return wide | LIST, layout(2 + len(dests), code).pack(origin, len(dests), *dests)


def _to_bitmap(dests: tuple[int, ...]) -> bytes:
    bits = 0
    for d in dests:
        bits |= 1 << d
    return bits.to_bytes(max(dests) // 8 + 1, "little")


def seal(flags: int, number: int, origin: int, dests: tuple[int, ...]) -> bytes:
    """The bytes of an envelope."""
    form, rest = fold(origin, dests)
    width = width_of(number)
    return _HEAD[width].pack(flags | form | width, number) + rest


def unseal(data: bytes, size: int) -> Envelope:
    """Raises ValueError for what `seal` does not make of members below `size`."""
    try:
        flags, number = _HEAD[data[0] & 3].unpack_from(data)
        at = 1 + WIDTHS[flags & 3]
        end = at + (4 if flags & WIDE else 2)
        if (form := flags & ALL) in (LIST, BITMAP):
            count = int.from_bytes(data[at + 2 : at + 4], "little") if flags & WIDE else data[at + 1]
            end += count * 2 if form == LIST and flags & WIDE else count
        if end > len(data):
            raise ValueError("cut short")
        origin, dests = unfold(flags & (WIDE | ALL), data[at:end], size)
    except (error, IndexError):
        raise ValueError("cut short") from None
    if not 0 < number < LIMIT:
        raise ValueError(f"no number of a message: {number}")
    return flags & -FLAG, number, dests, origin, end


@lru_cache(4096)
def unfold(form: int, data: bytes, size: int) -> tuple[int, tuple[int, ...]]:
    """Origin and destinations, checked: members below `size`, each once, the origin not among the destinations."""
    code, form = ("H" if form & WIDE else "B"), form & ~WIDE
    origin, count = layout(2, code).unpack_from(data)
    dests: tuple[int, ...]
    if form == ONE:
        dests = (count,)
    elif form == ALL:
        dests = tuple(k for k in range(min(count, size) + 1) if k != origin)
    elif form == LIST:
        dests = layout(2 + count, code).unpack(data)[2:]
    else:
        bits = f"{int.from_bytes(data[layout(2, code).size :], 'little'):b}"[::-1]
        dests = tuple(k for k, bit in enumerate(bits) if bit == "1")
    if not dests or max(origin, *dests) >= size or origin in dests or len(set(dests)) < len(dests):
        raise ValueError(f"no origin and destinations among {size} members: {origin}, {dests}")
    return origin, dests


_HEAD = tuple(Struct(f"<B{code}") for code in CODES)
