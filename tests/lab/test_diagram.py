"""Space-time diagrams: packets are arrows, what waits is a bar that links to its cause, and not too much at once."""

import re
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from mombroker.admin.cli.main import cli
from mombroker.admin.cli.reference import ROOT
from mombroker.lab import diagram, stories
from mombroker.lab.stories import Arrow, Story
from tests.lab.svg import SVG, links

RELAY = Story(
    ["a", "b", "c"],
    [
        Arrow("m1", "a", "c", 1, 100, 100),
        Arrow("m2", "a", "b", 10, 20, 20),
        Arrow("m3", "b", "c", 30, 50, 100, "m1"),
        Arrow("m4", "b", "a", 900, 950, 950),
    ],
)


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
