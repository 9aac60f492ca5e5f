"""The judge of a run: it objects to each thing that is not as it was."""

from collections.abc import Callable

import pytest

from mombroker.core.batch import InRow
from mombroker.core.trace import Record
from mombroker.sim.checkers import Stays, judge
from mombroker.sim.faults import Faults
from mombroker.sim.mischief import Trial
from mombroker.sim.node import Node
from mombroker.sim.seeds import cluster
from mombroker.sim.workloads import Bank, Wander
from mombroker.sim.world import MS


def at_rest(workload: type, seed: int = 0) -> Trial:
    made = next(made for n in range(seed, 100) if isinstance((made := cluster(n, faults=Faults())).workload, workload))
    assert made.run(300 * MS) == [] and judge(made)[0] == []
    return made


def reactions(node: Node, agent: str) -> list[int]:
    return [at for at, record in enumerate(node.trace) if record.kind == "react" and record.agent == agent]


def busiest(cluster: Trial) -> tuple[Node, str]:
    counts = [
        (len(reactions(node, agent)), node, agent)
        for node in cluster.nodes.values()
        for agent in node.disk.store.disk.agents
    ]
    _, node, agent = max(counts, key=lambda found: found[0])
    return node, agent


def lose(node: Node, agent: str) -> None:
    del node.trace[reactions(node, agent)[-1]]


def repeat(node: Node, agent: str) -> None:
    node.trace.append(node.trace[reactions(node, agent)[0]])


def reorder(node: Node, agent: str) -> None:
    first, *_, last = reactions(node, agent)
    node.trace[first], node.trace[last] = node.trace[last], node.trace[first]


def forget(node: Node, agent: str) -> None:
    path, state = node.disk.store.disk.agents[agent]
    node.disk.store.disk.agents[agent] = (
        path,
        node.program.initial(path, node.program.describe(path, state) | {"chain": 1}),
    )


def leave(node: Node, agent: str) -> None:
    node.disk.store.disk.queue_in[1] = InRow(1, agent, b"")


def bury(node: Node, agent: str) -> None:
    record = node.trace[reactions(node, agent)[0]]
    node.trace.append(record._replace(kind="dead", detail="no reason"))


@pytest.mark.parametrize(
    "spoil, complaint",
    [
        (lose, "lost among agents"),
        (repeat, "duplicates among agents"),
        (reorder, "violations among agents"),
        (forget, "is the effect of"),
        (leave, "messages in"),
        (bury, "are dead and reacted to"),
    ],
)
def test_it_objects(spoil: Callable[[Node, str], None], complaint: str):
    made = at_rest(Wander)
    spoil(*busiest(made))
    assert any(complaint in line for line in judge(made)[0])


def test_it_counts_the_money():
    made = at_rest(Bank)
    forget_all = made.nodes[made.workload.ids[0].partition("/")[0]]
    path, state = forget_all.disk.store.disk.agents[made.workload.ids[0]]
    fields = forget_all.program.describe(path, state)
    fields["balance"] += 1
    forget_all.disk.store.disk.agents[made.workload.ids[0]] = (path, forget_all.program.initial(path, fields))
    assert any("are left in the bank" in line for line in judge(made)[0])


def test_it_judges_servers_by_what_they_hand_over():
    made = at_rest(Wander)
    node = max(made.nodes.values(), key=lambda node: len(node.events))
    delivered = [at for at, event in enumerate(node.events) if event[0] == "deliver"]
    node.events[delivered[0]], node.events[delivered[-1]] = node.events[delivered[-1]], node.events[delivered[0]]
    assert any("among servers" in line for line in judge(made)[0])


def test_a_dead_letter_is_before_its_agent_only_until_that_is_made():
    made, early, late = (Record(kind, "a", at, "b/q") for at, kind in enumerate(("create", "dead", "dead")))
    assert Stays([("b", [early, made, late])]).before == {(("a", 1), "b/q")}
