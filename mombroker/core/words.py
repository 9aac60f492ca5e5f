"""Numbers in sentences for people."""


def many(number: int, one: str, more: str = "") -> str:
    """`1 message`, `3 messages`; with `more`, where an s does not make many of one: `1 entry`, `3 entries`."""
    return f"{number} {one if number == 1 else more or f'{one}s'}"
