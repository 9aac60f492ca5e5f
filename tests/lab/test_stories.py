"""What happened on a bus, from the logs of its servers: packets, who passed them on, and what each waited for."""

from xml.etree import ElementTree

import pytest

from mombroker import store
from mombroker.admin.cli.log import every
from mombroker.agents import Agent, notification, reacts
from mombroker.agents.testing import Bus as AgentBus
from mombroker.core import layouts
from mombroker.core.topology import Domain, Topology
from mombroker.core.trace import Record
from mombroker.lab import diagram, recording, stories
from mombroker.lab.communities import communities
from tests.lab.svg import SVG, links

BUS = layouts.build({"left": ("a", "b", "r"), "right": ("r", "c", "d")})


def record(kind, id, domain="", peer="", sent=0, received=0, delivered=0, done=0, out=(), missing=()):
    origin, number = id.split("#")
    return Record(
        kind, origin, int(number), domain=domain, peer=peer, sent=sent, received=received, delivered=delivered,
        done=done, out=[(into, to, 7, 3) for into, to in out], missing=list(missing),
    )  # fmt: skip


ACROSS = {
    "a": [record("send", "a#1", sent=10, done=10, out=[("left", "r"), ("left", "b")])],
    "b": [record("react", "a#1", "left", "a", 10, 20, 20, 25)],
    "r": [record("forward", "a#1", "left", "a", 10, 30, 30, 30, [("right", "c")])],
    "c": [record("react", "a#1", "right", "r", 10, 90, 90, 95)],
}


def test_of_packets_in_logs_the_size_of_the_stamp_is_told():
    story = stories.logged(ACROSS, BUS)
    assert [arrow.stamp for arrow in story.arrows] == ["7 bytes, 3 integers"] * 3
    assert diagram.svg(story, "title").count(", stamp of 7 bytes, 3 integers<") == 3


def test_what_a_router_only_passes_on_is_a_ring():
    story = stories.logged(ACROSS, BUS)
    assert [(a.frm, a.to, a.left, a.came, a.passed) for a in story.arrows] == [
        ("a", "b", 10, 20, False), ("a", "r", 10, 30, True), ("r", "c", 30, 90, False)
    ]  # fmt: skip
    root = ElementTree.fromstring(diagram.svg(story, "title"))
    assert [each.get("fill") for each in root.iter(f"{SVG}circle")] == [None, "#fff", None]


def test_what_is_passed_on_later_came_from_where_it_was_sent():
    """At r it waits for something of b, which r's record names then; it came when it was passed on, at the latest."""
    made = flat(("a", "b", "r", "c"), "daisy")
    logs = {
        "a": [record("send", "a#1", sent=10, out=[("flat", "b"), ("flat", "r")])],
        "r": [record("relay", "a#1", "flat", "b", 0, 50, 0, 50, [("flat", "c")])],
        "c": [record("react", "a#1", "flat", "r", 10, 60, 60, 65)],
    }
    (one, two) = stories.logged(logs, made).arrows
    assert (one.frm, one.to, one.left, one.came, one.latest, one.onward) == ("a", "r", 10, 50, True, False)
    assert (two.frm, two.to, two.latest, two.onward) == ("r", "c", False, True)


def test_what_is_for_agents_of_the_router_too_is_a_delivery():
    logs = ACROSS | {"r": [*ACROSS["r"], record("react", "a#1", "left", "a", 10, 30, 30, 40)]}
    assert not any(arrow.passed for arrow in stories.logged(logs, BUS).arrows)


def test_what_was_missing_is_what_is_waited_for():
    """At r b#1 must wait for a#1, and b#2 for b#1. What comes last before their delivery is of the other domain."""
    logs = {
        "a": [record("send", "a#1", sent=1, out=[("left", "r"), ("left", "b")])],
        "b": [record("send", f"b#{n}", sent=9 + n, out=[("left", "r")]) for n in (1, 2)],
        "c": [record("send", "c#1", sent=2, out=[("right", "r")])],
        "r": [
            record("hold", "b#1", "left", "b", 10, 20, missing=[(0, 1)]),
            record("hold", "b#2", "left", "b", 11, 20, missing=[(1, 1)]),
            record("react", "a#1", "left", "a", 1, 50, 50, 50),
            record("react", "b#1", "left", "b", 10, 20, 60, 61),
            record("react", "b#2", "left", "b", 11, 20, 60, 62),
            record("react", "c#1", "right", "c", 2, 59, 59, 59),
        ],
    }
    story = stories.logged(logs, BUS)
    assert [(a.message, a.waited_for) for a in story.arrows if a.held] == [("b#1", "a#1"), ("b#2", "b#1")]


@pytest.mark.parametrize("noted", [True, False])
def test_what_waited_when_its_server_died_came_when_it_began_to_wait(noted):
    """The server has forgotten when it came; the record of the wait may be gone."""
    logs = {
        "a": [record("send", "a#1", sent=1, out=[("left", "b")])],
        "r": [record("send", "r#1", sent=2, out=[("left", "b")])],
        "b": [
            *[record("hold", "r#1", "left", "r", 2, 20, missing=[(0, 1)])] * noted,
            record("react", "a#1", "left", "a", 1, 50, 50, 50),
            record("react", "r#1", "left", "r", 2, 0, 50, 51),
        ],
    }
    story = stories.logged(logs, BUS)
    (arrow,) = [arrow for arrow in story.arrows if arrow.message == "r#1"]
    assert (arrow.left, arrow.came, arrow.delivered, arrow.waited_for) == (
        (2, 20, 50, "a#1") if noted else (2, 50, 50, "")
    )
    assert diagram.svg(story.around("r#1"), "title")


def test_logs_that_are_not_there_leave_out_what_only_they_know():
    """The origin's clock is in all records; when a router sent it on, only the router knows."""
    logs = {name: records for name, records in ACROSS.items() if name in ("b", "c")}
    story = stories.logged(logs, BUS)
    assert [(a.frm, a.to, a.left) for a in story.arrows] == [("a", "b", 10)]
    assert story.around("a#1").processes == ["b", "a"] and diagram.svg(story.around("a#1"), "title")


def test_what_a_domain_did_is_drawn_when_it_is_no_longer_in_the_file():
    logs = ACROSS | {"c": [record("hold", "a#1", "right", "r", 10, 90, missing=[(0, 1)]), *ACROSS["c"]]}
    story = stories.logged(logs, layouts.build({"left": ("a", "b")}))
    assert [(a.frm, a.to) for a in story.arrows] == [("a", "b"), ("a", "r"), ("r", "c")]
    assert diagram.svg(story.around("a#1"), "title")
    logs = {"c": [record("react", "r#1", "right", "r", 10, 90, 90, 95)]}
    assert diagram.svg(stories.logged(logs, layouts.build({"left": ("a", "b")})).around("r#1"), "title")


def test_where_the_way_before_is_not_known_a_name_says_that_it_is_passed_on():
    logs = {name: records for name, records in ACROSS.items() if name in ("c", "r")}
    logs["r"] = [record("forward", "a#1", "left", "x", 0, 30, 30, 30, [("right", "c")])]
    story = stories.logged(logs, BUS).around("a#1")
    assert [(arrow.frm, arrow.to, arrow.onward) for arrow in story.arrows] == [("r", "c", True)]
    assert ">a#1, passed on</text>" in diagram.svg(story, "title")
    whole = stories.logged(ACROSS, BUS).around("a#1", most=4)
    assert [(arrow.frm, arrow.to) for arrow in whole.arrows] == [("a", "b"), ("a", "r")] and not any(
        arrow.onward for arrow in whole.arrows
    )


def flat(names, backend="vector"):
    made = layouts.build({"flat": names})
    return Topology("flat", made.servers, {"flat": Domain("flat", names, backend)}, registry=names[0])


VECTOR = flat(("a", "b", "c"))


def counted(number):
    """a#1 and a#2 are for b alone. b has both when it sends b#1 to c, which must wait there for a's multicast of this
    number."""
    both = [("flat", "b"), ("flat", "c")]
    return {
        "a": [record("send", f"a#{n}", sent=n, done=n, out=both) for n in (1, 2)],
        "b": [
            *(record("react", f"a#{n}", "flat", "a", n, 5 + n, 5 + n, 8) for n in (1, 2)),
            record("send", "b#1", sent=9, done=9, out=[("flat", "a"), ("flat", "c")]),
        ],
        "c": [
            record("hold", "b#1", "flat", "b", 9, 20, missing=[(0, number)]),
            record("react", "b#1", "flat", "b", 9, 20, 60, 61),
        ],
    }


@pytest.mark.parametrize("number", [1, 2])
def test_what_had_no_body_is_named_by_its_number_among_its_sender_s(number):
    """It has no record where it went. It came when what waited for it was in order, at the latest."""
    story = stories.logged(counted(number), VECTOR)
    (held,) = [arrow for arrow in story.arrows if arrow.held]
    assert (held.message, held.to, held.waited_for) == ("b#1", "c", f"a#{number}")
    (bare,) = [arrow for arrow in story.arrows if arrow.bare]
    assert (bare.message, bare.frm, bare.to, bare.left, bare.came) == (f"a#{number}", "a", "c", number, 60)
    root = ElementTree.fromstring(diagram.svg(story, "title"))
    said = [each.text for each in root.iter(f"{SVG}title")]
    assert links(root) == [f"#a#{number}"] and any("came after at most" in each for each in said)


def test_what_the_logs_cannot_name_they_say_so_of():
    """a's old records are gone; its log is not here; its numbers have begun anew; it is for c, and not yet read."""
    logs = counted(2)
    later = {name: [*records] for name, records in logs.items()}
    later["a"].append(record("send", "a#3", sent=3, done=3, out=[("flat", "c")]))
    later["c"].insert(0, record("react", "a#3", "flat", "a", 3, 15, 15, 16))
    for found, cut in ((logs, ["a"]), ({name: logs[name] for name in "bc"}, []), (later, [])):
        story = stories.logged(found, VECTOR, cut)
        assert [arrow.waited_for for arrow in story.arrows if arrow.held] == [""]
        assert "waited 0.00 ms for an earlier message that the logs do not name<" in diagram.svg(story, "title")
        assert not any(arrow.bare for arrow in story.arrows)
    send = logs["a"][1]
    logs["a"][1] = send._replace(dests=("b/x", "c/x"))
    story = stories.logged(logs, VECTOR)
    assert [arrow.waited_for for arrow in story.arrows if arrow.held] == ["a#2"]
    assert not any(arrow.bare for arrow in story.arrows)


def test_a_bus_under_vector_names_what_each_message_waited_for(tmp_path):
    """Held against what was seen at the wire: that packet came, or its message was in order, at that moment."""
    traffic = communities(1, 6)
    names = tuple(traffic.servers)
    topology = flat(names)
    truth = recording.record(topology, recording.paced(traffic.sends(150), 400), tmp_path)
    logs = {name: [*every(store.read(tmp_path / name))] for name in names}
    story = stories.logged(logs, topology)
    held = [arrow for arrow in story.arrows if arrow.held]
    ways = {(arrow.message, arrow.to): arrow for arrow in story.arrows}
    causes = [ways[arrow.waited_for, arrow.to] for arrow in held]
    assert len(held) > 50 and 10 < sum(cause.bare for cause in causes) < len(held)
    sent = {name: [f"{each[1]}#{each[2]}" for each in logs[name] if each[13]] for name in names}
    at = 0
    for arrow, cause in zip(held, causes, strict=True):
        passage = truth.passages["flat", cause.frm, arrow.to][sent[cause.frm].index(cause.message)]
        assert passage.arrived <= arrow.delivered
        at += arrow.delivered in (passage.arrived, passage.ordered)
    assert at > 0.9 * len(held)  # the others were the last to be counted, behind one of their sender that waited


@pytest.mark.parametrize(("backend", "number"), [("rst", 2), ("matrix", 2), ("ks", 3), ("daisy", 2)])
def test_of_what_came_at_once_that_is_waited_for_which_has_the_number(backend, number):
    """a#1 is for b alone; a#2 to a#4 come to c at one moment, in one commit, and b#1 needs a#3 of them: its second
    packet on this link, and its third in the domain. b#2 needs b#1, and c reacts to what came in another order."""
    made = flat(("a", "b", "c"), backend)
    b1, b2 = (record("react", f"b#{n}", "flat", "b", 9 + n, 20 + n, 60, 70) for n in (1, 2))
    logs = {
        "a": [
            record("send", "a#1", sent=1, done=1, out=[("flat", "b")]),
            *(record("send", f"a#{n}", sent=2, done=2, out=[("flat", "c")]) for n in (2, 3, 4)),
        ],
        "b": [record("send", f"b#{n}", sent=9 + n, done=9 + n, out=[("flat", "c")]) for n in (1, 2)],
        "c": [
            record("hold", "b#1", "flat", "b", 10, 21, missing=[(0, number)]),
            record("hold", "b#2", "flat", "b", 11, 22, missing=[(0, number), (1, 1)]),
            b2, b1, *(record("react", f"a#{n}", "flat", "a", 2, 60, 60, 70) for n in (4, 3, 2)),
        ],
    }  # fmt: skip
    assert waits(logs, made) == {"b#1": "a#3", "b#2": "b#1"}


def waits(logs, topology):
    return {arrow.message: arrow.waited_for for arrow in stories.logged(logs, topology).arrows if arrow.held}


def test_without_the_log_that_has_the_numbers_a_cause_is_named_if_nothing_else_can_be_it():
    made = flat(("a", "b", "c"), "rst")
    logs = {
        "b": [record("send", "b#1", sent=9, done=9, out=[("flat", "c")])],
        "c": [
            record("hold", "b#1", "flat", "b", 9, 21, missing=[(0, 2)]),
            *(record("react", f"a#{n}", "flat", "a", 2, 60, 60, 70) for n in (2, 3)),
            record("react", "b#1", "flat", "b", 9, 21, 60, 70),
        ],
    }
    assert waits(logs, made) == {"b#1": ""}
    del logs["c"][1]
    assert waits(logs, made) == {"b#1": "a#3"}


@pytest.mark.parametrize("backend", ["matrix", "rst", "ks", "vector", "daisy", "stable"])
def test_a_cause_was_in_order_in_the_step_of_the_core_that_set_free_what_waited_for_it(backend, tmp_path, monkeypatch):
    """Held against the cores themselves, where many packets travel in one commit."""
    steps, receive = [], recording._Watch.receive

    def watched(watch, frm, packet):
        step, sender = receive(watch, frm, packet), watch.domain.members[frm]
        steps.append((watch.tx.name, sender, watch.came[frm] - 1, [packet, *step.deliver], step.freed))
        return step

    monkeypatch.setattr(recording._Watch, "receive", watched)
    traffic = communities(1, 6)
    topology = flat(tuple(traffic.servers), backend.replace("stable", "daisy"))
    topology.domains["flat"].options |= {"relay": "stable"} if backend == "stable" else {}
    recording.record(topology, recording.paced(traffic.sends(400), 4000), tmp_path)
    logs = {name: [*every(store.read(tmp_path / name))] for name in topology.servers}
    on_link = {}
    for name, records in logs.items():
        for each in records:
            for _, to, _, _ in each[13]:
                on_link.setdefault((name, to), []).append(f"{each[1]}#{each[2]}")
    before = {}  # what was in order before it, in the same step
    for server, sender, n, packets, freed in steps:
        came = on_link[sender, server][n]  # it may have had no body
        ids = [came, *("{}#{}".format(*recording.ident(each.body)) for each in packets[1:] if each is not packets[0])]
        before |= {
            (server, id): {*ids[:at], *("{}#{}".format(*recording.ident(each.body)) for each in freed)}
            for at, id in enumerate(ids)
            if at
        }
    held = [arrow for arrow in stories.logged(logs, topology).arrows if arrow.held]
    assert len(held) > 15 and all(arrow.waited_for in before[arrow.to, arrow.message] for arrow in held)


@notification
class Sit:
    cast: bool


class Sitter(Agent):
    """A member of a group, which casts when it is told to."""

    @reacts
    def go(self, note: Sit) -> None:
        if note.cast:
            self.group("table").cast(Sit(False))
        elif self.sender.endswith("_admin"):
            self.join("table")


def test_views_of_groups_are_lines_from_the_log():
    bus = AgentBus({"a/x": Sitter, "b/y": Sitter})
    for agent in ("a/x", "b/y"):
        bus.send(agent, Sit(False), server=agent[0])
        bus.settle()
    bus.send("a/x", Sit(True), server="a")
    bus.settle()
    nodes = bus._cluster.nodes
    story = stories.logged({name: node.trace for name, node in nodes.items()}, bus._cluster.topology)
    assert [(mark.process, mark.text) for mark in sorted(story.marks, key=lambda mark: (mark.text, mark.process))] == [
        ("a", "table view 1: a/x"), ("a", "table view 2: a/x b/y"), ("b", "table view 2: a/x b/y")
    ]  # fmt: skip
    cast = next(arrow.message for arrow in reversed(story.arrows) if arrow.frm == "a")
    assert diagram.svg(story, "views", cast).count("table view 2: a/x b/y") >= 2
