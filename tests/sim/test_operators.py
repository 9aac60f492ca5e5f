"""Rules of replicated tables, broken on purpose: the operators' program must object."""

import pytest

from mombroker.core.message import BOUNCE, new_message
from mombroker.core.replicated import Replicated
from mombroker.sim.seeds import run


def decides_itself(table: Replicated, type: str, payload: bytes) -> None:
    """Each server is its own registry: changes of several have no one order."""
    tx = table.tx
    source, registry = f"{tx.name}/{table.agent}", f"{tx.name}/_registry"
    table._send(new_message(tx, source, (registry,), type, payload, flags=BOUNCE))


def told_to_itself(table: Replicated, servers: object, type: str, payload: bytes) -> None:
    """The registry tells nobody else."""
    tx = table.tx
    here = f"{tx.name}/{table.agent}"
    table._send(new_message(tx, f"{tx.name}/_registry", (here,), type, payload, flags=BOUNCE))


def not_kept(table: Replicated, key: object, row: str | None) -> None:
    """What was decided is in memory only."""


SEEDS = (1, 2, 5)


def test_the_tables_are_clean_without_a_fault():
    assert [run(seed, program="operators").wrong for seed in SEEDS] == [[], [], []]


@pytest.mark.parametrize(("name", "broken"), [("ask", decides_itself), ("_tell", told_to_itself), ("keep", not_kept)])
def test_a_broken_table_is_seen(name, broken, monkeypatch):
    monkeypatch.setattr(Replicated, name, broken)
    assert all(run(seed, program="operators").wrong for seed in SEEDS)
