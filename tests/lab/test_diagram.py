"""Space-time diagrams: packets are arrows, what waits is a bar that links to its cause, and not too much at once."""

import re
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from mombroker import store
from mombroker.admin.cli.log import every
from mombroker.admin.cli.main import cli
from mombroker.admin.cli.reference import ROOT
from mombroker.agents import Agent, notification, reacts
from mombroker.agents.testing import Bus as AgentBus
from mombroker.core import layouts
from mombroker.core.topology import Domain, Topology
from mombroker.core.trace import Record
from mombroker.lab import diagram, recording, stories
from mombroker.lab.communities import communities
from mombroker.lab.stories import Arrow, Story

SVG = "{http://www.w3.org/2000/svg}"
RELAY = Story(
    ["a", "b", "c"],
    [
        Arrow("m1", "a", "c", 1, 100, 100),
        Arrow("m2", "a", "b", 10, 20, 20),
        Arrow("m3", "b", "c", 30, 50, 100, "m1"),
        Arrow("m4", "b", "a", 900, 950, 950),
    ],
)


def links(root):
    return [each.get("href") for each in root.iter(f"{SVG}a")]


def test_what_waits_is_a_bar_and_links_to_its_cause():
    root = ElementTree.fromstring(diagram.svg(RELAY, "a < b"))
    assert links(root) == ["#m1"] and {each.get("id") for each in root.iter(f"{SVG}text")} >= {"m1", "m2", "m3", "m4"}
    assert len(list(root.iter(f"{SVG}circle"))) == 4 and "a < b" in {each.text for each in root.iter(f"{SVG}text")}


def test_a_bar_ends_at_a_line_to_where_what_it_waited_for_came():
    root = ElementTree.fromstring(diagram.svg(RELAY, "title"))
    (bar,) = (each for each in root.iter(f"{SVG}rect") if each.get("fill-opacity"))
    end = int(bar.get("x")) + int(bar.get("width"))
    (cause,) = (each for each in root.iter(f"{SVG}g") if each.find(f"{SVG}title").text.startswith("m1:"))
    dot = cause.find(f"{SVG}circle")
    lines = [each for each in root.iter(f"{SVG}line") if each.get("stroke-opacity") == "0.6"]
    assert [(each.get("x1"), each.get("y1"), each.get("x2")) for each in lines] == [
        (dot.get("cx"), dot.get("cy"), f"{end}")
    ]
    assert lines[0].get("stroke") == cause.get("stroke")


@pytest.mark.parametrize(("clock", "told"), [
    (False, "ms after the first packet left;"), (True, "ms after 2026-03-01T12:00:00.123456Z;"),
])  # fmt: skip
def test_the_axis_tells_when_packets_left_and_came(clock, told):
    begin = 1_772_366_400_123_456_789
    arrows = [Arrow(f"m{at}", "a", "b", begin + at * 10**7, begin + at * 10**7 + 5 * 10**6) for at in range(9)]
    root = ElementTree.fromstring(diagram.svg(Story(["a", "b"], arrows), "title", clock=clock))
    texts = [each for each in root.iter(f"{SVG}text") if each.get("font-size") == "11"]
    assert texts[0].text.startswith(told)
    times = {float(each.text): int(each.get("x")) for each in texts[1:]}
    assert len(times) > 3 and [*times] == sorted(times) and min(times) == 0
    assert {time % 5 for time in times} == {0}
    xs = [*times.values()]
    assert all(b - a >= diagram.TICK for a, b in zip(xs, xs[1:], strict=False))
    grid = [each for each in root.iter(f"{SVG}line") if each.get("stroke") == "#edf0f3"]
    assert [int(each.get("x1")) for each in grid] == xs


@pytest.mark.parametrize("backend", ["matrix", "rst", "ks", "vector", "overlay", "daisy", "abcast"])
def test_hovering_over_a_packet_tells_its_stamp(backend):
    root = ElementTree.fromstring(diagram.svg(stories.played(backend, 4, 6, 0.5, 1), "title"))
    titles = [each.text for each in root.iter(f"{SVG}title")]
    assert titles and all(
        re.search(r", stamp of \d+ bytes?, \d+ integers?, [0-9a-f]{2}( [0-9a-f]{2})*", each) for each in titles
    )


def test_a_long_stamp_is_shown_by_its_first_bytes():
    assert stories.stamped(b"\x01\xff", 2) == "2 bytes, 2 integers, 01 ff"
    assert stories.stamped(bytes(40), 9) == f"40 bytes, 9 integers, {'00 ' * 31}00 ..."


@pytest.mark.parametrize(("backend", "servers", "waits"), [("matrix", 4, True), ("ks", 3, True), ("fifo", 2, False)])
def test_without_a_seed_a_picture_is_one_in_which_something_waits_if_there_is_one(backend, servers, waits, tmp_path):
    words = ["sim", "diagram", backend, "--servers", f"{servers}", "--to", str(tmp_path / "new.svg")]
    assert CliRunner().invoke(cli, words).exit_code == 0
    drawn = (tmp_path / "new.svg").read_text()
    seed = re.search(r"servers, seed (\d+): around", drawn)[1]
    assert (", waited " in drawn) == waits and (waits or seed == "1")


def test_the_message_in_the_middle_is_bold():
    root = ElementTree.fromstring(diagram.svg(RELAY, "title", "m3"))
    assert {each.text for each in root.iter(f"{SVG}text") if each.get("font-weight") == "700"} == {"m3"}
    widths = [each.get("stroke-width") for each in root.iter(f"{SVG}g") for each in each.iter(f"{SVG}line")]
    assert widths.count("2.6") == 1 < widths.count("1.4")


def test_only_what_is_near_is_drawn():
    near = RELAY.around("m3", most=7)
    assert [arrow.message for arrow in near.arrows] == ["m1", "m2", "m3"] and near.processes == ["a", "b", "c"]
    assert [arrow.message for arrow in RELAY.around("m4", most=2).arrows] == ["m4"]
    assert RELAY.around("m4", most=2).processes == ["a", "b"]


def test_moments_are_in_order_and_neither_too_near_nor_too_far():
    xs = [*diagram.places([0, 1, 1_000, 10**9]).values()]
    gaps = [b - a for a, b in zip(xs, xs[1:], strict=False)]
    assert xs == sorted(xs) and diagram.STEP <= min(gaps) and max(gaps) == diagram.STEP + diagram.STRETCH


@pytest.mark.parametrize(
    ("backend", "servers"),
    [("matrix", 4), ("rst", 4), ("ks", 4), ("vector", 4), ("overlay", 5), ("daisy", 5), ("abcast", 4), ("fifo", 2)],
)
def test_a_domain_tells_its_story(backend, servers):
    """Every delivery is a dot; the same seed draws the same picture."""
    story = stories.played(backend, servers, 100, 0.5, 1)
    assert all(
        arrow.came >= arrow.left and (not arrow.delivered or arrow.delivered >= arrow.came) for arrow in story.arrows
    )
    assert story == stories.played(backend, servers, 100, 0.5, 1)
    waited = [arrow for arrow in story.arrows if arrow.held]
    assert all(arrow.waited_for for arrow in waited) and (waited or backend in ("overlay", "fifo"))
    came = {(arrow.message, arrow.to, arrow.came) for arrow in story.arrows}
    assert all((arrow.waited_for, arrow.to, arrow.delivered) in came for arrow in waited), "what came then set it free"
    events = sum(3 if arrow.held else 2 for arrow in story.around("m5").arrows)
    assert events <= stories.MOST


def test_what_only_counts_is_drawn_to_all_that_it_is_not_for():
    """Under `vector` a message goes to every member, its body to its destinations alone."""
    story = stories.played("vector", 4, 40, 0.3, 1)
    for message in {arrow.message: None for arrow in story.arrows}:
        assert len({arrow.to for arrow in story.arrows if arrow.message == message}) == 3
    assert all(arrow.bare == arrow.passed == (not arrow.delivered) for arrow in story.arrows)
    bare = sum(arrow.bare for arrow in story.arrows)
    assert 40 < bare < len(story.arrows)
    root = ElementTree.fromstring(diagram.svg(story, "title"))
    assert [each.get("fill") for each in root.iter(f"{SVG}circle")].count("#fff") == bare
    assert sum(each.get("stroke-dasharray") is not None for each in root.iter(f"{SVG}line")) == bare
    assert any((each.text or "").startswith("dashed: without the body") for each in root.iter(f"{SVG}text"))
    assert not any(arrow.bare for arrow in stories.played("ks", 4, 40, 0.3, 1).arrows)


def test_the_cause_is_there_however_far_it_went_and_no_link_leads_nowhere():
    """m1 is old; what has waited for m2 is nearer in time, and would take all the room."""
    near = [Arrow(f"n{at}", "a", "b", 1015 + at, 1016 + at, 1150, "m2") for at in range(90)]
    cause, asked = Arrow("m1", "a", "c", 1, 5, 1150), Arrow("m2", "b", "c", 1010, 1020, 1150, "m1")
    other = Arrow("m3", "a", "c", 1011, 1021, 1160, "far")
    story = Story(["a", "b", "c"], [cause, asked, other, *near]).around("m2")
    assert cause in story.arrows and sum(arrow.events for arrow in story.arrows) <= stories.MOST
    root = ElementTree.fromstring(diagram.svg(Story(story.processes, [cause, asked, other]), "title"))
    assert links(root) == ["#m1"] and len(list(root.iter(f"{SVG}rect"))) == 1 + 3
    assert any("for far" in (each.text or "") for each in root.iter(f"{SVG}title"))


@pytest.mark.parametrize(("backend", "seed"), [("ks", 3), ("ks", 4), ("vector", 1), ("daisy", 1)])
def test_with_what_waited_is_drawn_what_it_waited_for(backend, seed):
    story = stories.played(backend, 12, 40, 0.6, seed)
    for middle in [arrow.message for arrow in story.arrows if arrow.held][:8]:
        near = story.around(middle)
        held = [arrow for arrow in near.arrows if arrow.held]
        drawn = {(arrow.message, arrow.to) for arrow in near.arrows}
        assert held and all((arrow.waited_for, arrow.to) in drawn for arrow in held)
        assert sum(arrow.events for arrow in near.arrows) <= stories.MOST
        assert len(links(ElementTree.fromstring(diagram.svg(near, "title")))) == len(held)


def test_of_a_chain_that_is_too_long_its_end_is_drawn():
    chain = [Arrow(f"m{at}", "a", "b", at, 20 + at, 99, f"m{at - 1}" if at else "") for at in range(20)]
    near = Story(["a", "b"], [*chain, Arrow("n", "b", "a", 19, 40, 40)]).around("m19", most=13)
    assert [arrow.message for arrow in near.arrows] == ["m16", "m17", "m18", "m19"]
    root = ElementTree.fromstring(diagram.svg(near, "title"))
    assert links(root) == ["#m16", "#m17", "#m18"]
    assert any("waited 0.00 ms for m15" in (each.text or "") for each in root.iter(f"{SVG}title"))
    assert len(Story(["a", "b"], chain).around("m19", most=1).arrows) == 1


def commit(messages):
    """They went from a to b in one commit."""
    return [Arrow(f"m{at}", "a", "b", 10, 20, 20) for at in range(messages)]


def test_of_packets_that_lie_upon_each_other_one_is_drawn_and_says_how_many_there_are():
    """What is near in time has the room, then."""
    near = [Arrow(f"n{at}", "b", "a", 30 + at, 60 + at, 60 + at) for at in range(22)]
    story = Story(["a", "b"], [*commit(40), *near]).around("m7")
    assert [arrow.message for arrow in story.arrows] == ["m7", *(arrow.message for arrow in near)]
    assert story.arrows[0].twins == tuple(f"m{at}" for at in range(40) if at != 7)
    root = ElementTree.fromstring(diagram.svg(story, "title", "m7"))
    assert {each.text for each in root.iter(f"{SVG}text") if each.get("id") == "m7"} == {"m7 and 39 more"}
    (said,) = [each.text for each in root.iter(f"{SVG}title") if "m7:" in each.text]
    assert said.endswith("; with it went 39 more: m0, m1, m2, m3, m4, m5, m6, m8, m9, m10, m11, m12, ...")


def test_what_looks_alike_is_drawn_where_another_waited_for_it():
    """And what waited longer, or is not for that process, does not look alike."""
    others = [Arrow("w", "a", "b", 10, 20, 40), Arrow("p", "a", "b", 10, 20, passed=True)]
    story = Story(["a", "b", "c"], [*commit(5), *others, Arrow("x", "c", "b", 12, 15, 20, "m3")]).around("m1")
    assert {arrow.message: len(arrow.twins) for arrow in story.arrows} == {"m1": 3, "w": 0, "p": 0} | {
        "x": 0, "m3": 0, "m1": 3
    }  # fmt: skip


def test_what_is_drawn_at_one_moment_is_set_apart_and_the_message_in_the_middle_is_in_front():
    """m0 to m3 wait for each other, so all of them are drawn."""
    chain = [Arrow(f"m{at}", "a", "b", 10, 20, 40, f"m{at - 1}") for at in range(1, 6)]
    story = Story(["a", "b"], [Arrow("m0", "a", "b", 10, 20, 20), *chain, Arrow("n", "b", "a", 21, 30, 30)])
    root = ElementTree.fromstring(diagram.svg(story.around("m5"), "title", "m5"))
    lines = [next(each.iter(f"{SVG}line")) for each in root.iter(f"{SVG}g")]
    assert len(lines) == 7 and lines[-1].get("stroke-width") == "2.6"
    for key in ("x1", "x2"):
        xs = sorted(float(line.get(key)) for line in lines)
        assert all(b - a >= diagram.SPOT - 0.1 for a, b in zip(xs, xs[1:], strict=False)), key
    dots = [(float(each.get("cx")), float(each.get("cy"))) for each in root.iter(f"{SVG}circle")]
    assert all((x - x2) ** 2 + (y - y2) ** 2 >= 9**2 for at, (x, y) in enumerate(dots) for x2, y2 in dots[:at])


def test_a_name_is_within_the_picture_and_beside_no_other_and_no_name_of_a_process_is_under_a_line():
    long = "a-server-of-a-very-long-name"
    arrows = [Arrow(f"{long}#{10**6 + at}", long, "b", 10 + at // 4, 30 + at % 4, 30 + at % 4) for at in range(12)]
    root = ElementTree.fromstring(diagram.svg(Story([long, "b"], arrows).around(arrows[0].message), "t", "none"))
    names = [each for each in root.iter(f"{SVG}text") if each.get("id")]
    at = [(float(each.get("x")), float(each.get("y")), 7.4 * len(each.text)) for each in names]  # pixels of a letter
    assert len(at) == 12 and max(x + wide for x, _, wide in at) < float(root.get("width"))
    for n, (x, y, wide) in enumerate(at):
        assert all(abs(y - y2) >= diagram.NAME or x + wide <= x2 or x2 + wide2 <= x for x2, y2, wide2 in at[:n])
    assert min(float(each.get("x1")) for each in root.iter(f"{SVG}line")) > 12 + 7.4 * len(long)


@pytest.mark.parametrize(("backend", "servers"), [("daisy", 8), ("daisy", 6), ("overlay", 4)])
def test_a_name_stands_where_the_message_was_sent(backend, servers):
    """What was passed on is drawn with its way there."""
    for seed in range(1, 40):
        story = stories.played(backend, servers, 12, 0.3, seed)
        sender = {arrow.message: arrow.frm for arrow in story.arrows if not arrow.onward}
        held = [arrow.message for arrow in story.arrows if arrow.held]
        for middle in dict.fromkeys([*held[:1], *sorted(sender)[:4]]):
            near = story.around(middle)
            assert sum(arrow.events for arrow in near.arrows) <= stories.MOST
            root = ElementTree.fromstring(diagram.svg(near, "title", middle))
            line = {text.text: float(text.get("y")) - 4 for text in root.iter(f"{SVG}text") if text.get("x") == "12"}
            for name in (each for each in root.iter(f"{SVG}text") if each.get("id")):
                at = line[sender[name.get("id")]]
                assert abs(float(name.get("y")) - at) == min(
                    abs(float(name.get("y")) - y) for y in line.values() if y > 22
                )


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


def test_bars_and_names_of_a_process_cover_each_other_nowhere():
    spans = [("a", 0, 50), ("a", 10, 20), ("a", 15, 60), ("b", 15, 60), ("a", 24, 30), ("a", 0, 50)]
    found = diagram.lanes(spans)
    assert found == [0, 2, 3, 0, 2, 1]
    held = [Arrow(f"m{at}", "a", "b", 10 + at, 30 + at, 99 + 3 * (at % 4), "m0") for at in range(16)]
    story = Story(["a", "b"], [Arrow("m0", "a", "b", 1, 98, 98), *held])
    root = ElementTree.fromstring(diagram.svg(story, "title"))
    bars = [[float(each.get(key)) for key in ("x", "y", "width", "height")] for each in [*root.iter(f"{SVG}rect")][1:]]
    assert len(bars) > 4
    for at, (x, y, width, height) in enumerate(bars):
        for x2, y2, width2, height2 in bars[:at]:
            assert x + width <= x2 or x2 + width2 <= x or y + height <= y2 or y2 + height2 <= y
    at = [(float(each.get("x")), float(each.get("y"))) for each in root.iter(f"{SVG}text") if each.get("id")]
    assert len(at) > 4 and all(
        abs(y - y2) >= diagram.NAME or abs(x - x2) > diagram.CHAR for n, (x, y) in enumerate(at) for x2, y2 in at[:n]
    )


def test_a_name_is_on_the_side_of_the_line_where_no_arrow_of_its_message_begins():
    """Unless something waits below."""
    story = Story(["a", "b", "c"], [Arrow("up", "b", "a", 1, 9, 9), Arrow("both", "b", "a", 2, 8, 8),
                                    Arrow("both", "b", "c", 2, 7, 7), Arrow("down", "a", "c", 3, 10, 12, "up"),
                                    Arrow("held", "c", "a", 4, 11, 11)])  # fmt: skip
    root = ElementTree.fromstring(diagram.svg(story, "title"))
    line = {each.text: float(each.get("y")) - 4 for each in root.iter(f"{SVG}text") if each.text in story.processes}
    name = {each.get("id"): float(each.get("y")) for each in root.iter(f"{SVG}text") if each.get("id")}
    assert name["down"] < line["a"] < name["both"] < line["b"] < name["up"] < name["held"] < line["c"]


# -- from logs ---------------------------------------------------------------------------------------------------------

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


# -- those of the documents --------------------------------------------------------------------------------------------

PICTURES = {  # docs/spacetime: servers, messages, share of multicasts, seed, and the message in the middle
    "matrix": (4, 6, 0.3, 16, "m5"),
    "rst": (4, 6, 0.3, 16, "m5"),
    "ks": (4, 6, 0.3, 16, "m5"),
    "vector": (4, 3, 0.3, 22, "m2"),
    "overlay": (5, 2, 0.3, 1, "m1"),
    "daisy": (5, 4, 0.5, 8, "m3"),
    "fifo": (2, 4, 0.3, 1, "m1"),
}


def test_the_text_beside_a_picture_says_what_is_in_it():
    """Of `vector`: m1 is for s4 alone, and m2, which s4 sends after it, waits for it at s2, where it is a ring."""
    servers, sends, multicasts, seed, _ = PICTURES["vector"]
    arrows = stories.played("vector", servers, sends, multicasts, seed).arrows
    assert [arrow.to for arrow in arrows if arrow.message == "m1" and not arrow.bare] == ["s4"]
    assert [(a.message, a.frm, a.to, a.waited_for) for a in arrows if a.held] == [("m2", "s4", "s2", "m1")]
    text = (ROOT / "docs" / "orderings.md").read_text().partition("spacetime/vector.svg")[2][:400]
    assert all(each in text for each in ("m1 is for s4 alone", "A dashed arrow is a packet without a body", "At s2 m2"))


@pytest.mark.parametrize("backend", PICTURES)
def test_the_documents_show_what_is_drawn_today(backend, tmp_path):
    servers, sends, multicasts, seed, message = PICTURES[backend]
    words = ["sim", "diagram", backend, "--servers", servers, "--sends", sends, "--multicasts", multicasts]
    words += ["--seed", seed, "--around", message, "--to", tmp_path / "new.svg"]
    assert CliRunner().invoke(cli, [*map(str, words)]).exit_code == 0
    shown = ROOT / "docs" / "spacetime" / f"{backend}.svg"
    assert shown.read_text() == (tmp_path / "new.svg").read_text(), f"draw it by mom {' '.join(map(str, words[:-2]))}"


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
