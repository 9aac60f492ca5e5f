"""Settings of a topology that are changed while servers crash: everybody goes by the same in the end, in one order."""

from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

import pytest

from mombroker.core import revision
from mombroker.core.engine import Engine
from mombroker.core.server import AgentServer
from mombroker.core.truth import Truth
from mombroker.sim.seeds import run


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 1_000), marks=pytest.mark.long)])
def test_changes_of_settings_under_faults(seeds):
    made = 0
    for seed in seeds:
        done = run(seed, program="revisions", backends=("", "matrix", "ks", "daisy", "overlay", "rst", "vector"))
        assert done.wrong == [], (seed, done.wrong)
        made += done.counts["revisions"]
    assert made > 2 * len(seeds)


JUDGE, REVISE, DECLARE, TURN = Truth.judge, Truth._revise, Engine.declare, AgentServer.turn


def whatever_was_expected(truth: Truth, expected: int, text: str) -> Any:
    """The registry takes a change that was made of an older revision: what came between is undone."""
    return JUDGE(truth, truth.number, text)


def not_kept(*_: Any) -> dict[str, Any]:
    """What was decided is in memory only."""
    return {}


def not_installed(truth: Truth, number: int, since: int, text: str) -> None:
    """The store has it, and the server goes on by the former one until it starts anew."""
    install, truth.install = truth.install, lambda topology: None
    REVISE(truth, number, since, text)
    truth.install = install


def delayed() -> AbstractContextManager[Any]:
    """A declared agent is made some turns after its declaration is in force."""
    stack = ExitStack()
    waiting: dict[int, list[Any]] = {}

    def declare(engine: Engine, agents: Any) -> None:
        waiting.setdefault(id(engine), []).extend(agents)

    def turn(server: AgentServer, now: int) -> None:
        agents = waiting.pop(id(server.engine), [])
        TURN(server, now)
        if agents and now % 5:
            waiting[id(server.engine)] = agents
        else:
            DECLARE(server.engine, agents)

    stack.enter_context(patch.object(Engine, "declare", declare))
    stack.enter_context(patch.object(AgentServer, "turn", turn))
    return stack


CONTROLS = {
    "the registry does not ask which revision a change was made of": lambda: patch.object(
        Truth, "judge", whatever_was_expected
    ),
    "a revision is not kept": lambda: patch.object(revision, "rows", not_kept),
    "a revision is not installed": lambda: patch.object(Truth, "_revise", not_installed),
    "a declared agent is made later": delayed,
}
SEEDS = range(12)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_broken_rule_is_seen(name):
    with CONTROLS[name]():
        assert any(run(seed, program="revisions").wrong for seed in SEEDS)
