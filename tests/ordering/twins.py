"""Two domains under one schedule: in one every core restarts from its rows after each step, in the other none does."""

import random
from collections.abc import Callable
from typing import Any

from mombroker.ordering import Ordering, Packet, Rows


def never_restarted(seed: int, backend: type[Ordering], stamp_of: Callable[[Packet], Any], **options: Any) -> None:
    """Asserts that they do the same; packets arrive in the order of each link. `stamp_of` is for comparison."""
    lots = random.Random(seed)
    size = lots.randrange(3, 8)
    steady = [backend(me, size, **options) for me in range(size)]
    shaken = [backend(me, size, **options) for me in range(size)]
    rows: list[Rows] = [{} for _ in range(size)]
    links: dict[tuple[int, int], list[bytes]] = {(a, b): [] for a in range(size) for b in range(size) if a != b}
    slow = {link for link in links if lots.random() < 0.3}

    def restart(me: int) -> None:
        put, gone = shaken[me].dirty()
        rows[me] |= put
        for key in gone:
            del rows[me][key]
        shaken[me] = backend.restore(me, size, dict(rows[me]), **options)
        shaken[me].check()
        assert shaken[me].dirty() == ({}, set())

    def waits(core: Ordering) -> dict[bytes, list[tuple[int, int]]]:
        return {packet.body: sorted(causes) for packet, causes in core.held()}

    for number in range(40):
        frm = lots.randrange(size)
        dests = tuple(lots.sample([k for k in range(size) if k != frm], lots.choice((1, 2, size - 1))))
        pair = steady[frm].send(dests, b"%d" % number), shaken[frm].send(dests, b"%d" % number)
        for one, other in zip(*pair, strict=True):
            assert (one.to, one.dests, one.body, stamp_of(one)) == (other.to, other.dests, other.body, stamp_of(other))
            links[frm, one.to].append(shaken[frm].encode(other))
        restart(frm)
        while ways := [link for link, packets in links.items() if packets and (number == 39 or link not in slow)]:
            frm, to = lots.choice(ways)
            data = links[frm, to].pop(0)
            done = steady[to].receive(frm, steady[to].decode(frm, data)).deliver
            again = shaken[to].receive(frm, shaken[to].decode(frm, data)).deliver
            assert sorted(packet.body for packet in done) == sorted(packet.body for packet in again)
            assert waits(steady[to]) == waits(shaken[to])
            restart(to)
            assert waits(steady[to]) == waits(shaken[to])
            if number < 39 and lots.random() < 0.2:
                break
        slow = {link for link in links if lots.random() < 0.3}
    assert not any(core.held() for core in steady + shaken)
