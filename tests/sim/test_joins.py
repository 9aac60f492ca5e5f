"""Servers are attached under faults: what keeps that right, broken on purpose, must be seen by clients of newcomers."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from mombroker.broker.session.service import Sessions
from mombroker.broker.topic.routing import Topics
from mombroker.core import revision
from mombroker.core.channel import Channel
from mombroker.core.message import decode
from mombroker.core.meta import ATTACHED
from mombroker.core.newcomers import Newcomers
from mombroker.core.replicated import Replicated
from mombroker.core.truth import REVISED
from mombroker.sim import seeds
from mombroker.sim.joins import BACKENDS, Joins
from mombroker.sim.relayouts import changed
from mombroker.sim.seeds import run
from mombroker.sim.world import SECOND
from tests.fakes_bus import replaced


def ignored(right):
    return lambda self, *given: None


def of_old(tx, servers):
    """Those that the bus began with."""
    return [name for name in servers if tx.written("meta", f"{ATTACHED}{name}") is None]


def told_to_the_old(right):
    return lambda self, servers, type, payload: right(
        self, servers if type == REVISED else of_old(self.tx, servers), type, payload
    )


def announced_to_the_old(right):
    return lambda self, table: self._send(of_old(self.tx, self.tx.topology.servers), table)


@contextmanager
def unaddressed():
    with replaced(Replicated, "_tell", told_to_the_old), replaced(Topics, "_announce", announced_to_the_old):
        yield


def applied_at_arrival(right):
    def packet(self, part, link, data):
        body = part.decode(link, data).body
        message = decode(body) if body else None
        if message and message.type == REVISED and any(agent.startswith(f"{self.tx.name}/") for agent in message.dests):
            self.engine.handlers[REVISED](message)
        right(self, part, link, data)

    return packet


def obeyed(right):
    return lambda self, session, command: self._obeys[type(command)](session, command)


def known_without_word(right):
    def unknown(self, epochs):
        with patch.object(self.natives.newcomers, "unmet", []):
            return right(self, epochs)

    return unknown


class Relaid(Joins):
    """Domains change by a freeze, too: in between, and with newcomers inside when the faults are over."""

    calm = False

    def _attach(self):
        if self.calm or self.rng.random() < 0.5:
            super()._attach()
        else:
            self._relay()

    def _relay(self):
        node = self.rng.choice(list(self.cluster.nodes.values()))
        if not node.up or node.stopping:
            return
        truth = node.server.truth
        self.asked += 1
        new = changed(self.rng, revision.read(truth.text), BACKENDS, 100 * self.asked)
        self.cluster.ask(node.name, "apply_topology", {"text": revision.text_of(new), "revision": truth.number})

    def settle(self, cluster):
        self.calm = True
        self._attach()
        self.start_all()
        self._relay()
        self.world.run(self.world.now + 20 * SECOND)
        super().settle(cluster)

    def counts(self):
        meta = next(iter(self.cluster.nodes.values())).disk.store.meta()
        told = [line for _, _, lines in revision.history(meta).values() for line in lines]
        return super().counts() | {"relaid": sum(line.startswith(("~ domain", "- domain")) for line in told)}


def test_domains_change_among_newcomers():
    counts = Counter()
    with patch.dict(seeds.PROGRAMS, relaid=Relaid):
        for seed in range(3):
            result = run(seed, program="relaid")
            assert not result.wrong, (seed, result.wrong)
            counts.update(result.counts)
    assert counts["joins"] > 6 and counts["relaid"] > 3


class Control(NamedTuple):
    patch: Callable[[], AbstractContextManager[Any]]
    seeds: tuple[int, ...]  # that show it, the quickest first


CONTROLS = {
    "tables without what is told later": Control(partial(replaced, Newcomers, "pass_on", ignored), (0, 1, 2)),
    "changes of tables are not for newcomers": Control(unaddressed, (2, 0, 1)),
    "a revision in force at its arrival": Control(partial(replaced, Channel, "_packet", applied_at_arrival), (2, 1, 0)),
    "clients before the tables": Control(partial(replaced, Sessions, "_too_early", obeyed), (11, 12, 1)),
    "receipts without the newcomers": Control(partial(replaced, Topics, "joined", ignored), (4, 1, 9)),
    "known before all have said so": Control(partial(replaced, Topics, "unknown", known_without_word), (2, 3, 5)),
}


@pytest.mark.interpreted
@pytest.mark.parametrize("name", CONTROLS)
def test_control(name):
    control = CONTROLS[name]
    with control.patch():
        assert any(run(seed, program="joins").wrong for seed in control.seeds)
