"""Bytes and values that are nearly right, for tests of whatever comes from outside."""

import os

COUNT = int(os.environ.get("MOM_FUZZ", "1000"))  # of each kind
SEED = 1000 * int(os.environ.get("MOM_FUZZ_SEED", "0"))  # another one: other mutants


def mutated(at_random, good):
    """Some of these, one behind the other, with bytes that are changed, left out, put in, or there many times."""
    data = bytearray(b"".join(at_random.choices(good, k=at_random.randint(1, 3))))
    for _ in range(at_random.randint(1, 5)):
        at = at_random.randrange(len(data))
        match at_random.randrange(4):
            case 0:
                data[at] = at_random.randrange(256)
            case 1:
                del data[at : at + at_random.randint(1, 20)]
            case 2:
                data[at:at] = at_random.randbytes(at_random.randint(1, 20))
            case 3:
                data[at:at] = data[at : at + 40] * at_random.randint(1, 20)
        data = data or bytearray(b"x")
    return bytes(data)


ODD = ["", "a", "\0", "ä" * 300, b"", b"\xff", 0, 1, -1, 1 << 31, (1 << 63) - 1, 1 << 63, None, True, 1.5, [], {}, [[]]]


def changed(at_random, value):
    """A value of msgpack with one part that is another one."""
    if isinstance(value, list | tuple) and value and at_random.random() < 0.9:
        at, value = at_random.randrange(len(value)), list(value)
        match at_random.randrange(8):
            case 0:
                del value[at]
            case 1:
                value.insert(at, at_random.choice(ODD))
            case _:
                value[at] = changed(at_random, value[at])
        return value
    if isinstance(value, dict) and value and at_random.random() < 0.9:
        name = at_random.choice(list(value))
        return {**value, name: changed(at_random, value[name])}
    if isinstance(value, bytes) and value and at_random.random() < 0.7:
        return mutated(at_random, [value])
    if type(value) is int and at_random.random() < 0.5:
        return value + at_random.choice((-1, 1, 2, 1000))
    return at_random.choice(ODD)
