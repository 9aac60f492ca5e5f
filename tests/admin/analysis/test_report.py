"""What report.py makes of the small results that Spark gives it, without Spark; and the page of that."""

import re
from itertools import combinations, permutations
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="this needs the extra spark")

from pyspark.sql import Row  # noqa: E402

import mombroker  # noqa: E402
from mombroker import ordering  # noqa: E402
from mombroker.admin.analysis import figures as making  # noqa: E402
from mombroker.admin.analysis import maps, page, pictures, report, timeline, traffic  # noqa: E402
from mombroker.core import layouts  # noqa: E402

SECOND = 10**9
NS = [1_000_000, 2_000_000, 3_000_000]


def machine(server: str, first: int = 0, last: int = 100, **more: Any) -> Row:
    row = {"server": server, "records": 9, "logged": 4, "commits": 2, "rows": 30, "bytes": 500, "counted": 1,
           "waits": 2, "wait": 4_000_000, "wait_ns": NS, "first": first * SECOND, "last": last * SECOND}  # fmt: skip
    return Row(**{**row, **more})


def stamped(server: str, peer: str, packets: int = 10, ordering: str = "matrix", **more: Any) -> Row:
    row: dict[str, Any] = {"server": server, "kind": "send", "domain": "d1", "ordering": ordering, "peer": peer}
    each = {"packets": 1, "control_bytes": 10, "control_ints": 3, "messages": 1, "payload": 40}
    row |= {name: count * packets for name, count in each.items()}
    return Row(**{**row, **more})


def taken(server: str, peer: str, records: int = 10, kind: str = "react", agent: str = "") -> Row:
    return Row(domain="d1", server=server, peer=peer, agent=agent or f"{server}/x", kind=kind, records=records)


def delay(server: str | None, peer: str | None, domain: str | None = "d1", least: int = 1000, **more: Any) -> Row:
    row: dict[str, Any] = {"domain": domain, "server": server, "peer": peer, "messages": 10, "payload": 400, "held": 2}
    for part in ("store", "link", "hold"):
        row |= {part: 20_000_000, f"{part}_count": 10, f"{part}_ns": NS}
    return Row(**{**row, "early": 0, "ahead": 0, "least": least, **more})


def log(**parts: list[Row]) -> dict[str, list[Row]]:
    """Three servers in a ring: each sends ten messages to the next."""
    ring = [("s1", "s2"), ("s2", "s3"), ("s3", "s1")]
    rows = {
        "machines": [machine(a) for a, _ in ring],
        "stamped": [stamped(a, b) for a, b in ring],
        "taken": [taken(b, a) for a, b in ring],
        "agents": [Row(source=f"{a}/x", target=f"{b}/x", messages=10, payload=400) for a, b in ring],
        "servers": [Row(source=a, targets=[b], messages=10, payload=400, first=0, last=SECOND) for a, b in ring],
        "sources": [Row(source=a, messages=10, payload=400, leaving=10, first=0, last=SECOND) for a, _ in ring],
        "pairs": [Row(source=a, target=b, messages=10, payload=400) for a, b in ring],
        "delays": [*[delay(b, a) for a, b in ring], delay(None, None), delay(None, None, None)],
        "holds": [], "waiting": [],
        "arrivals": [
            Row(server=b, origin=a, hops=h, copies=10, queue=10_000_000, total=50_000_000, queue_ns=NS, total_ns=NS)
            for a, b, h in (*[(a, b, 1) for a, b in ring], (None, None, 1), (None, None, None))
        ],
    }  # fmt: skip
    return rows | parts


def complete(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """With `targets`, which Spark makes of the whole of `agents` and `taken`."""
    names = {row.target for row in rows["agents"]} | {row.agent for row in rows["taken"] if row.kind == "react"}
    targets = [
        Row(agent=name, wanted=sum(row.messages for row in rows["agents"] if row.target == name),
            became=sum(row.records for row in rows["taken"] if row.agent == name and row.kind != "forward"), agents=1)
        for name in sorted(names)
    ]  # fmt: skip
    every = Row(agent=None, wanted=sum(row.wanted for row in targets), became=0,
                agents=sum(1 for row in targets if row.wanted))  # fmt: skip
    return {**rows, "targets": [*targets, every]}


def anomalies(rows: dict[str, list[Row]], servers: int = 3) -> list[tuple[str, str]]:
    rows = complete(rows)
    topology = layouts.build({"d1": [f"s{at + 1}" for at in range(servers)]})
    return [
        (row["kind"], row["where"])
        for row in making.figures(rows, topology, *report.span(rows["machines"]))["anomalies"]
    ]


def figures(rows: dict[str, list[Row]]) -> dict[str, Any]:
    rows = complete(rows)
    return making.figures(rows, None, *report.span(rows["machines"]))


def test_a_calm_log_has_no_anomalies():
    assert anomalies(log()) == []


def test_a_link_under_two_back_ends_has_its_payload_once():
    rows = log()
    rows["stamped"][0] = stamped("s1", "s2", 6)
    rows["stamped"].append(stamped("s1", "s2", 4, "ks"))
    found = figures(rows)
    assert [(row["from"], row["ordering"], row["packets"], row["payload_bytes"]) for row in found["links"]] == [
        ("s1", "ks, matrix", 10, 400), ("s2", "matrix", 10, 400), ("s3", "matrix", 10, 400),
    ]  # fmt: skip
    (domain,) = found["domains"]
    assert (domain["ordering"], domain["packets"], domain["payload_bytes"]) == ("ks, matrix", 30, 1200)
    assert domain["formula_ints"] is None  # which of the two?
    assert found["totals"]["control_bytes"] == 300


def test_servers_and_back_ends_have_bytes_integers_and_times():
    found = figures(log())
    server = found["servers"][0]
    assert {name: server[name] for name in ("payload_bytes", "control_bytes", "control_ints", "control_pct")} == {
        "payload_bytes": 400, "control_bytes": 100, "control_ints": 30, "control_pct": 20.0,
    }  # fmt: skip
    # 10 sent and 10 reacted to, in 2 commits of 30 rows and 500 bytes
    assert (server["messages_per_commit"], server["rows_per_message"], server["bytes_per_message"]) == (10, 1.5, 25)
    (backend,) = found["orderings"]
    assert (backend["sends"], backend["control_ints"], backend["ints_per_packet"]) == (30, 90, 3)
    assert (backend["store_ms"], backend["link_ms"], backend["hold_ms"]) == (2, 2, 2)


def test_what_a_router_passes_on_into_two_domains_is_one_message():
    rows = log()
    rows["stamped"] += [stamped("s2", "s3", 4, kind="forward", domain=domain) for domain in ("d1", "d2")]
    rows["taken"].append(taken("s2", "s1", 4, "forward", ""))
    assert [row["forwarded"] for row in figures(rows)["servers"]] == [0, 4, 0]


def test_bytes_on_the_wire_and_of_disks_are_those_that_servers_have_counted():
    def meter(server, figure, amount, peer=""):
        return Row(server=server, domain="d1" if peer else "", peer=peer, figure=figure, amount=amount)

    rows = log(meters=[meter("s1", "wire_bytes", 2000, "s2"), meter("s1", "wal_bytes", 9000), meter("s1", "new", 1)])
    found = figures(rows)
    assert [(row["wire_bytes"], row["control_pct_of_wire"]) for row in found["links"]] == [
        (2000, 5.0), (None, None), (None, None),
    ]  # fmt: skip
    assert [(row["domain"], row["wire_bytes"]) for row in found["domains"]] == [("d1", 2000)]
    assert [(row["wire_bytes"], row["wal_bytes"], row["disk_bytes"]) for row in found["servers"]] == [
        (2000, 9000, None), (None, None, None), (None, None, None),
    ]  # fmt: skip
    totals = found["totals"]
    assert (totals["wire_bytes"], totals["wal_bytes"], totals["rows"], totals["value_bytes"]) == (2000, 9000, 90, 1500)


def test_a_report_says_of_when_it_is_and_by_which_version():
    rows = log(machines=[machine(f"s{at}", 1_700_000_000, 1_700_000_100) for at in (1, 2, 3)])
    found = figures(rows)["log"]
    assert found["version"] == mombroker.__version__ and found["seconds"] == 100
    assert (found["start"], found["end"]) == ("2023-11-14T22:13:20.000000Z", "2023-11-14T22:15:00.000000Z")


def test_a_domain_has_what_the_papers_say_of_one_of_its_size():
    (domain,) = figures(log())["domains"]
    said = ordering.backend("matrix").describe(("s1", "s2", "s3"), {})
    assert (domain["members"], domain["ints_per_packet"]) == (3, 3)
    assert domain["formula_ints"] == round(said["control_bytes"] / 4, 1)
    assert domain["formula_worst_ints"] == 9.0 == said["control_bytes_worst"] / 4


def test_the_queue_and_the_way_by_hops_have_percentiles():
    latency = figures(log())["latency"]
    assert {"part": "queue", "seconds": 0.01, "pct": 14.3, "p50_ms": 1, "p95_ms": 2, "p99_ms": 3} in latency["parts"]
    (row,) = latency["by_hops"]
    assert (row["hops"], row["copies"], row["mean_ms"], row["p99_ms"], row["queue_p95_ms"]) == (1, 10, 5, 3, 2)
    assert (latency["mean_ms"], latency["slowest"]["p95_ms"]) == (5, 2)


def test_long_lists_are_whole_and_the_page_says_what_it_leaves_out():
    many = [Row(source="s1/x", target=f"s2/{at:03}", messages=at, payload=0) for at in range(page.ROWS + 7)]
    found = figures(log(agents=many))
    assert len(found["agents"]) == len(many) and found["agents"][0]["messages"] == len(many) - 1
    assert [row["agent"] for row in found["hot"]] == []
    pytest.importorskip("networkx", reason="this needs the extra spark")
    assert page.page(found, None).count("And 7 more.") == 1


def test_a_destination_is_hot_and_a_server_skewed_that_has_three_times_the_mean():
    agents = [Row(source="s1/x", target=f"s2/{at}", messages=1000 if at == 3 else 10, payload=0) for at in range(9)]
    (hot,) = figures(log(agents=agents))["hot"]
    assert (hot["agent"], hot["times_mean"]) == ("s2/3", 8.3)
    sources = [Row(source="s1", messages=9000, payload=0, leaving=9000, first=0, last=1)]
    sources += [Row(source=f"s{at}", messages=9, payload=0, leaving=9, first=0, last=1) for at in range(2, 9)]
    rows = log(machines=[machine(f"s{at}") for at in range(1, 9)], sources=sources)
    assert ("skew", "s1") in anomalies(rows, 8)


def test_who_waits_for_whom_is_named_the_heaviest_first():
    waiting = [
        Row(domain="d1", server="s1", member=at, messages=at, hold=at * SECOND, longest=5_000_000) for at in (1, 2)
    ]
    topology = layouts.build({"d1": ["s1", "s2", "s3"]})
    found = making.waits(log(waiting=waiting), topology)
    assert [(row["waits_for"], row["seconds"], row["longest_ms"]) for row in found] == [("s3", 2, 5), ("s2", 1, 5)]


@pytest.mark.parametrize("lack, found", [(4, [("undelivered", "s2/x")]), (-4, [("duplicates", "s2/x")])])
def test_what_has_not_arrived_or_came_twice_is_told(lack, found):
    rows = log()
    rows["taken"][0] = taken("s2", "s1", 10 - lack)
    assert anomalies(rows) == found


def test_a_log_that_ends_before_the_others_makes_no_duplicates_and_nothing_undelivered():
    rows = log(machines=[machine("s1", last=30), machine("s2"), machine("s3")])
    rows["stamped"][0] = stamped("s1", "s2", 3)
    rows["agents"][0] = Row(source="s1/x", target="s2/x", messages=3, payload=120)
    rows["taken"][2] = taken("s1", "s3", 3)
    assert anomalies(rows) == [("short log", "s1")]


def test_nor_is_a_log_short_where_one_packet_is_for_several_agents():
    rows = log()
    rows["taken"].append(taken("s2", "s1", 10, agent="s2/y"))
    rows["agents"].append(Row(source="s1/x", target="s2/y", messages=10, payload=400))
    assert anomalies(rows) == []


def test_nor_does_a_log_that_is_not_there():
    rows = log()
    rows["machines"] = rows["machines"][1:]
    rows["stamped"], rows["agents"], rows["taken"] = rows["stamped"][1:], rows["agents"][1:], rows["taken"][:2]
    assert anomalies(rows) == [("silent server", "s1")]


def test_of_a_run_of_moments_no_server_is_silent():
    def ended(after: float, whole: float):
        rows = log(machines=[machine("s1", last=whole), machine("s2", last=whole), machine("s3", last=after)])
        return anomalies(rows)

    assert ended(0.1, 1) == [] and ended(0.1, 2) == [("silent server", "s3")]


HOUR = 3600


@pytest.mark.parametrize("off", [-HOUR, HOUR, -1_700_000_000])
def test_a_wrong_clock_makes_no_server_silent_and_hides_none(off):
    """Of five, s2 has a wrong clock and s4 falls silent."""

    def far(at: int) -> int:
        return off * SECOND if at == 2 else 0

    names = range(1, 6)
    machines = [machine(f"s{at}", 0 + off * (at == 2), (30 if at == 4 else 100) + off * (at == 2)) for at in names]
    pairs = [(a, b) for a in names for b in names if a != b]
    links = [delay(f"s{b}", f"s{a}", least=1000 + far(b) - far(a)) for a, b in pairs]
    out = [stamped(f"s{a}", f"s{b}") for a, b in pairs]
    rows = complete(log(machines=machines, delays=links, stamped=out))
    found = making.figures(rows, None, *report.span(machines))["anomalies"]
    assert [(row["where"], row["text"]) for row in found if row["kind"] == "silent server"] == [
        ("s4", "its last record is 70.0 s before the end")
    ]


def test_holds_that_grow_and_bad_ends_and_clocks_are_told():
    rows = log(
        holds=[Row(domain="d1", slot=slot, messages=1, hold=slot * 3 * SECOND) for slot in range(timeline.SLOTS)]
    )
    rows["taken"].append(taken("s3", "", 2, "dead", "s3/gone"))
    rows["delays"][0] = delay("s2", "s1", least=-5, early=3, ahead=5)
    assert anomalies(rows) == [("growing holds", "d1"), ("dead", "s3/gone"), ("clocks", "s1 to s2")]


def test_the_page_escapes_names_and_has_the_advice():
    pytest.importorskip("networkx", reason="this needs the extra spark")
    found = figures(log(agents=[Row(source="s1/<i>", target="s2/&", messages=1, payload=0)]))
    advice = {"worthwhile": True, "verdict": "<b>2 changes",
              "options": [{"price": 1234.5, "packets": 1, "control_bytes": 2, "delay_ms": 3}],
              "model": [{"figure": "hops", "error_pct": -7.25}],
              "changes": ["domain <d1> goes"], "remarks": [], "forecast": [],
              "front": [{"number": at, "packets": 1.5 * at, "control_bytes": 9 / at, "delay_ms": 1, "is": which}
                        for at, which in ((1, "proposed"), (2, "current"), (3, ""))],
              "current": {"<d1>": {"servers": ["s1", "s2", "s3"], "ordering": "ks"}},
              "proposed": {"<d2>": {"servers": ["s1", "s2"], "ordering": "fifo"},
                           "<d3>": {"servers": ["s2", "s3"], "ordering": "fifo"}}}  # fmt: skip
    text = page.page(found, SimpleNamespace(name="<bus>"), advice)  # type: ignore[arg-type]
    assert "What ordering costs: &lt;bus&gt;" in text and "s1/&lt;i&gt;" in text and "s2/&amp;" in text
    assert '<p class="good">&lt;b&gt;2 changes</p>' in text and "<li>domain &lt;d1&gt; goes</li>" in text
    assert '<td class="n">1,234.5</td>' in text and "<i>" not in text and "<d" + "2>" not in text
    assert text.count('r="6" class="dot"') == 1  # the router of the proposal, s2
    assert "The current topology" in text and "The proposed topology" in text
    assert '<td class="n">-7.25</td>' in text
    assert "<h2>Advice</h2>" not in page.page(found, None)


def test_what_is_not_told_of_a_server_s_messages_goes_where_its_copies_go():
    rows = log()
    rows["servers"] = [Row(source="s1", targets=["s2", "s3"], messages=6, payload=1, first=0, last=SECOND)]
    rows["sources"] = [Row(source=a, messages=10, payload=1, leaving=8, first=0, last=SECOND) for a in ("s1", "s2")]
    pairs = [("s1", "s2", 7), ("s1", "s3", 7), ("s2", "s1", 8)]
    rows["pairs"] = [Row(source=a, target=b, messages=count, payload=1) for a, b, count in pairs]
    assert traffic.load(None, rows, 0).flows == {
        ("s1", ("s2", "s3")): 6, ("s1", ("s2",)): 1, ("s1", ("s3",)): 1, ("s2", ("s1",)): 8,
    }  # fmt: skip


def test_the_log_says_what_the_model_says_too():
    """Ten messages of each cross one link; seventy stay at home."""
    rows = log()
    rows["servers"].append(Row(source="s1", targets=[], messages=70, payload=400, first=0, last=SECOND))
    rows["arrivals"].append(
        Row(server="s1", origin="s1", hops=0, copies=70, queue=9, total=9, queue_ns=NS, total_ns=NS)
    )
    assert traffic.load(None, rows, 0).seen == {"control_bytes": 10, "packets": 1, "hops": 1, "delay_ms": 4}


# -- the page ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [pictures.SHARE, pictures.HOLD])
def test_a_colour_means_the_same_on_every_page(steps):
    calm, warm, hot = (pictures.colour(each, steps) for each in steps)
    assert [calm, warm, hot] == ["#6a9cc8", "#d6a032", "#cd3228"]
    assert pictures.colour(0, steps) == calm and pictures.colour(1e9, steps) == hot
    assert pictures.colour(0.018, pictures.HOLD) == calm  # 18 us of hold are no alarm, though no link has more


def test_the_page_has_a_time_axis_with_what_is_known():
    times = [
        Row(slot=0, messages=96, payload=960, copies=2, total=4_000_000, total_ns=NS),
        Row(slot=2, messages=0, payload=0, copies=0, total=0, total_ns=None),
    ]
    machines = [machine(each, 1_700_000_000, 1_700_000_096) for each in ("s1", "s2", "s3")]
    rows = log(machines=machines, times=times, holds=[Row(domain="d1", slot=2, messages=1, hold=SECOND)])
    found = figures(rows)
    first, second, third, *rest = found["timeline"]
    assert first == {
        "time": "2023-11-14T22:13:20.000Z", "messages_s": pytest.approx(48), "payload_bytes_s": pytest.approx(480),
        "mean_ms": 2, "p95_ms": 2, "held": 0,
    }  # fmt: skip
    assert (second["mean_ms"], second["messages_s"], third["held"]) == (None, 0, 0.5)
    assert len(rest) == 45 and third["time"] == "2023-11-14T22:13:24.000Z"
    text = page.page(found, None)
    assert "<h2>Over time</h2>" in text and "22:13:20" in text and "Time of a copy, from send to reaction, ms" in text
    assert text.count('r="2" class="c0"') == 2 * 48 + 1  # of the mean there is one point
    assert "<h2>Over time</h2>" not in page.page(figures(log(machines=[])), None)


def test_the_heat_map_has_a_square_for_each_pair_and_servers_of_a_domain_side_by_side():
    text = page.page(figures(log()), None)
    for a, b in (("s1", "s2"), ("s2", "s3"), ("s3", "s1")):
        assert f"<title>{a} to {b}: 10 messages, 400 bytes</title>" in text
    rows = [{"from": "a", "to": f"b{at}", "messages": at, "payload_bytes": 1} for at in range(60)]
    drawn = pictures.heat(rows, [])
    assert "the 40 busiest of 61 servers" in drawn and "b59" in drawn and "b3:" not in drawn


def shown(domains):
    return {name: {"ordering": "ks", "servers": each} for name, each in domains.items()}


@pytest.mark.parametrize("servers", [2, 3, 9, 40])
def test_a_map_is_as_wide_as_its_picture_no_higher_than_it_has_to_be_and_has_its_names_within(servers):
    drawn = maps.topology(
        shown({f"d{at}": [f"server{at:08}", f"server{at + 1:08}"] for at in range(servers)}), "A chain"
    )
    wide, high = (int(size) for size in re.search(r'viewBox="0 0 (\d+) (\d+)"', drawn).groups())
    spots = [(int(x), int(y)) for x, y in re.findall(r'<circle cx="(\d+)" cy="(\d+)"', drawn)]
    assert (min(x for x, _ in spots), max(x for x, _ in spots)) == (30, wide - 30)
    assert 24 <= min(y for _, y in spots) and max(y for _, y in spots) <= high - 24
    assert high <= (maps.TALL if servers == 40 else maps.HIGH)
    names = re.findall(r'<text x="(\d+)" y="\d+" text-anchor="(start|end)" class="name[ a-z]*">([^<]+)</text>', drawn)
    assert len(names) == servers + 1
    assert legible(drawn) == 2 * servers + 1
    for x, anchor, name in names:  # on a phone a letter takes 11 of its units at most
        assert 0 <= int(x) + (11 * len(name) if anchor == "start" else -11 * len(name)) <= wide


TEXT = re.compile(r'<text x="(\d+)" y="(\d+)" text-anchor="(start|middle|end)" class="(name[ a-z]*)">([^<]+)</text>')


def texts(drawn, wide, high, kinds=("name", "name soft", "name screen", "name soft screen")):
    """Left, top, right, bottom of each name, of letters of such a size."""
    for x, y, anchor, kind, name in TEXT.findall(drawn):
        left = int(x) - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * wide * len(name)
        if kind in kinds:
            yield left, int(y) - 0.75 * high, left + wide * len(name), int(y) + 0.25 * high


def meeting(boxes):
    return [
        (a, b) for a, b in combinations(boxes, 2) if a[0] < b[2] - 1 and b[0] < a[2] - 1 and a[1] < b[3] and b[1] < a[3]
    ]


def legible(drawn):
    """No name lies on another one, or on a dot, with letters of a screen or of a phone; how many there are."""
    dots = [tuple(map(int, each)) for each in re.findall(r'<circle cx="(\d+)" cy="(\d+)"', drawn)]
    for boxes in (list(texts(drawn, 7, 12)), list(texts(drawn, 10.5, 18, ("name", "name soft")))):
        assert not meeting(boxes)
        assert not [(a, x, y) for a in boxes for x, y in dots if a[0] < x < a[2] and a[1] < y < a[3]]
    return len(TEXT.findall(drawn))


@pytest.mark.parametrize("name", ["s", "server-"])
def test_no_name_of_36_servers_lies_on_another(name):
    domains = layouts.bus([f"{name}{at + 1}" for at in range(36)])
    assert legible(maps.topology(shown(domains), "A map")) == 43
    rows = [
        {"domain": name, "from": a, "to": b, "packets": 1, "held": 1.0}
        for name, each in domains.items()
        for a, b in permutations(each, 2)
    ]
    assert legible(maps.links(rows, "held", "A map", " ms", pictures.HOLD)) == 43
    assert "svg.map .screen { display: none }" in page.STYLE  # on a phone


def test_of_too_many_servers_some_names_are_told_by_a_mouse_alone(monkeypatch):
    monkeypatch.setattr(maps, "PAIRS", 500_000)
    drawn = maps.topology(shown(layouts.bus([f"server-{at}" for at in range(150)])), "A map")
    names = legible(drawn)
    assert 0 < names < 163 and f"; {163 - names} names without room" in drawn
    assert drawn.count("<circle") == drawn.count("</title></circle>") == 150


def test_the_page_fits_a_phone_and_the_dark_and_explains_its_words():
    text = page.page(figures(log()), None)
    assert 'content="width=device-width, initial-scale=1"' in text and "prefers-color-scheme: dark" in text
    assert "<h2>Words and units</h2>" in text and '<th title="sends, each to one agent' in text
    assert "svg.map { font-size: 18px }" in text and '<span class="key"><span style="color:#6a9cc8">' in text
    assert page._head("packets_s").endswith(">packets a second</th>") and page._head("rows_s").count("a second") == 1


def test_a_finding_is_a_sentence():
    row = {"finding": "violation", "agent": "c/x", "message": "a#1", "before": "b#2", "domain": "d", "ordering": "ks",
           "from": "a", "to": "c"}  # fmt: skip
    said = "c/x reacted to a#1 only after b#2, though a#1 is a cause of it, last from a to c in d (ks)"
    assert page.sentence(row) == said
    sent = [("a/x", "a#1"), ("a/x", "a#2"), ("b/y", "b#2")]
    row["causes"] = [{"agent": agent, "message": message} for agent, message in sent]
    chain = "a/x sent a#1; a/x, which had sent that, sent a#2; b/y, which had got that, sent b#2"
    assert page.sentence(row) == f"{said}: {chain}"
    shown = page.page({**figures(log()), "findings": [{**row, "count": 1}]}, None)
    assert chain in shown and "<th>causes" not in shown and "[{" not in shown
    assert page.sentence({**row, "finding": "lost", "before": None, "domain": None}) == "c/x never got a#1"
