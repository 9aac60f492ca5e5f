"""`mom sim`: what it prints and writes."""

import json
import sqlite3
from importlib.metadata import EntryPoint

import pytest
from click.testing import CliRunner

from mombroker.admin.cli import sim
from mombroker.admin.cli.main import cli
from mombroker.lab.dynamic import change as changes
from mombroker.lab.isis import group
from mombroker.ordering import registry


@pytest.fixture
def mom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*words, code=0):
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == code, result.output
        return result

    (tmp_path / "bus.toml").write_text(run("topology", "generate", "bus", "9").stdout)
    return run


def test_a_run_shows_each_domain_and_the_whole(mom):
    words = ["sim", "run", "bus.toml", "--sends", "60", "-o", "json"]
    rows = json.loads(mom(*words).stdout)
    assert [row["domain"] for row in rows] == ["backbone", "d1", "d2", "d3", "all"]
    assert rows[-1]["packets"] == sum(row["packets"] for row in rows[:-1]) and rows[-1]["messages"] == 60
    assert json.loads(mom(*words).stdout) == rows != json.loads(mom(*words, "--seed", "2").stdout)
    rst = json.loads(mom(*words, "--ordering", "rst", "--network", "uniform").stdout)
    assert {row["ordering"] for row in rst[:-1]} == {"rst"} and rst[0]["integers"] == 9
    assert json.loads(mom(*words, "--network", "wires", "--workload", "bursts").stdout)[-1]["p99_ms"] > 0


def test_a_trace_file_is_a_workload_and_an_unknown_name_is_wrong_usage(mom, tmp_path):
    (tmp_path / "t.csv").write_text("1,s1,s9\n2,s9,s1 s2\n")
    assert json.loads(mom("sim", "run", "bus.toml", "--workload", "t.csv", "-o", "json").stdout)[-1]["messages"] == 2
    assert "poisson, constant, bursts" in mom("sim", "run", "bus.toml", "--workload", "x", code=2).stderr


def test_a_csv_file_may_begin_with_a_byte_order_mark(mom, tmp_path):
    """As Excel writes it."""
    words = ["sim", "run", "bus.toml", "-o", "json", "--workload"]
    for head in ("", "ms,server,dests\n"):
        (tmp_path / "t.csv").write_text(f"{head}1,s1,s9\n", encoding="utf-8-sig")
        assert json.loads(mom(*words, "t.csv").stdout)[-1]["messages"] == 1
    for head in ("", "from,to,ms\n"):
        (tmp_path / "links.csv").write_text(f"{head}s1,s2,7\n", encoding="utf-8-sig")
        assert json.loads(mom(*words, "t.csv", "--network", "links.csv").stdout)[-1]["p50_ms"] % 7 == 0


def test_an_option_that_a_workload_does_not_take_is_refused(mom, tmp_path):
    (tmp_path / "t.csv").write_text("1,s1,s9\n")
    words = ["sim", "run", "bus.toml", "--workload"]
    said = mom(*words, "ping-pong", "--multicasts", "1", "--local", "1", "--gap", "5", code=2).stderr
    assert "--workload ping-pong does not take --gap, --multicasts, --local\n" in said
    assert "--workload t.csv does not take --sends\n" in mom(*words, "t.csv", "--sends", "5", code=2).stderr
    assert "there is no workload" in mom(*words, "x", "--gap", "5", code=2).stderr
    mom(*words, "constant", "--sends", "5", "--gap", "5", "--multicasts", "1", "--local", "1")


def test_an_option_that_a_network_does_not_take_is_refused(mom, tmp_path):
    (tmp_path / "links.csv").write_text("s1,s2,7\n")
    (tmp_path / "var").mkdir()
    words = ["sim", "run", "bus.toml", "--sends", "5", "--transit", "77", "--network"]
    for network in ("campus", "links.csv", "logs"):
        said = mom(*words, network, code=2).stderr
        assert f"--network {network} does not take --transit\n" in said
    assert "there is no network" in mom(*words, "x", code=2).stderr
    for network in ("exponential", "uniform", "wires", "multicast"):
        mom(*words, network)


def test_delays_that_no_link_has_are_refused(mom, tmp_path):
    for option in ("--transit", "--gap"):
        assert "86400000" in mom("sim", "run", "bus.toml", option, "1e300", code=2).stderr
    for row, said in (("s1,s1,5", "s1 has no link to itself"), ("s1,s2,1e300", "from s1 to s2 it takes longer than")):
        (tmp_path / "links.csv").write_text(f"s2,s3,5\n{row}\n")
        assert mom("sim", "run", "bus.toml", "--network", "links.csv", code=1).stderr.startswith(
            f"Error: links.csv: {said}"
        )


def test_ping_pong_asks_all_and_waits_for_all(mom):
    """48 of 54 messages: six rounds, each of a multicast and eight answers; paper 004, section 6."""
    words = ["sim", "run", "bus.toml", "--workload", "ping-pong", "--sends", "54", "-o", "json"]
    whole = json.loads(mom(*words).stdout)[-1]
    assert whole["messages"] == 6 * (1 + 8)
    for sends, messages in ((1, 9), (9, 9), (10, 18), (53, 54)):  # a round that has begun goes on to its end
        assert json.loads(mom(*words, "--sends", str(sends)).stdout)[-1]["messages"] == messages


def test_every_network_can_be_chosen_and_has_its_own_delays(mom, tmp_path):
    (tmp_path / "links.csv").write_text("from,to,ms\ns1,s2,7\ns1,s3,7\n")
    words = ["sim", "run", "bus.toml", "--sends", "60", "--multicasts", "1", "-o", "json", "--network"]
    whole = {net: json.loads(mom(*words, net).stdout)[-1] for net in ("wires", "multicast", "campus", "links.csv")}
    assert len({(row["p50_ms"], row["p99_ms"]) for row in whole.values()}) == 4
    assert whole["links.csv"]["p50_ms"] % 7 == 0 and whole["campus"]["messages"] == 60
    wires, copied = whole["wires"], whole["multicast"]
    for row in (wires, copied):  # small packets, of a fragment each
        assert row["fragments"] == row["packets"] and row["queue_most"] >= 1 > row["queue"] > 0
    assert wires["wire_hops"] > copied["wire_hops"] > 0 and "fragments" not in whole["campus"]
    for network, said in (("x", "wires, multicast, campus, logs"), ("logs", "a folder of data folders")):
        assert said in mom(*words, network, code=2).stderr
    (tmp_path / "links.csv").write_text("s1,s2,nan\n")
    assert "links.csv:1: a row is server" in mom(*words, "links.csv", code=1).stderr


def test_the_size_of_messages_counts_on_wires(mom):
    """A fragment for every 1500 bytes of what the ordering adds, here up to 400, and the message."""
    words = ["sim", "run", "bus.toml", "--sends", "60", "--multicasts", "1", "--ordering", "rst", "-o", "json"]
    for network in ("wires", "multicast"):
        rows = {}
        for size, each in ((0, 1), (100, 1), (1000, 1), (1500, 2), (2600, 2), (60_000, 41)):
            rows[size] = json.loads(mom(*words, "--network", network, "--bytes", str(size)).stdout)[-1]
            assert rows[size]["packets"] == rows[0]["packets"] and rows[size]["fragments"] == each * rows[0]["packets"]
            assert rows[size]["control_bytes"] == rows[0]["control_bytes"] < 400
        assert 10 * rows[100]["queue"] < rows[60_000]["queue"] and rows[100]["p50_ms"] < rows[60_000]["p50_ms"]
        assert json.loads(mom(*words, "--network", network).stdout)[-1] == rows[100]
    whole = [
        json.loads(mom(*words, "--network", "campus", "--bytes", size).stdout)[-1]["p50_ms"] for size in ("0", "60000")
    ]
    assert whole[0] + 47 < whole[1]  # on a backbone a byte takes 0.8 us


def test_the_size_of_messages_counts_in_rounds_and_in_traces(mom, tmp_path):
    (tmp_path / "t.csv").write_text("1,s1,s2\n2,s2,s1 s3\n")
    words = ["sim", "run", "bus.toml", "--network", "wires", "--bytes", "60000", "-o", "json", "--workload"]
    for workload in ("t.csv", "ping-pong"):
        whole = json.loads(mom(*words, workload).stdout)[-1]
        assert whole["fragments"] == 41 * whole["packets"] > 0


def test_the_size_of_messages_is_refused_where_it_does_not_count(mom, tmp_path):
    (tmp_path / "links.csv").write_text("s1,s2,7\n")
    for network in ("exponential", "uniform", "links.csv"):
        said = mom("sim", "run", "bus.toml", "--network", network, "--bytes", "5", code=2).stderr
        assert f"--network {network} does not take --bytes\n" in said
    for size in ("-1", "8388609"):
        assert size in mom("sim", "run", "bus.toml", "--network", "wires", "--bytes", size, code=2).stderr


def test_more_messages_than_fit_into_memory_are_wrong_usage(mom):
    for workload in ("poisson", "ping-pong"):
        said = mom("sim", "run", "bus.toml", "--workload", workload, "--sends", "1000001", code=2).stderr
        assert "1000001 is not in the range 1<=x<=1000000" in said


def test_a_run_shows_how_far_it_is(mom, tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text("".join(f"{at},s1,s9 s2\n" for at in range(400)))
    seen = []
    monkeypatch.setattr(sim.Bar, "at", lambda bar, done, total: seen.append((done, total)))
    poisson = ("poisson", "--sends", "500", "--multicasts", "0")
    for words, copies in ((("t.csv",), 800), (poisson, 500), (("ping-pong", "--sends", "500"), 2 * 56 * 8)):
        mom("sim", "run", "bus.toml", "--workload", *words)
        done = [at for at, _ in seen]
        assert {total for _, total in seen} == {copies} and done == sorted(set(done))
        assert 5 < len(done) <= 201 and done[-1] > copies * 0.8
        seen.clear()


def test_numbers_that_are_none_are_wrong_usage(mom):
    for option in ("--transit", "--gap", "--multicasts"):
        for value in ("nan", "inf"):
            assert value in mom("sim", "run", "bus.toml", option, value, code=2).stderr


def test_a_back_end_that_a_domain_cannot_have_is_refused(mom):
    assert "between two servers" in mom("sim", "run", "bus.toml", "--ordering", "fifo", code=1).stderr


def test_a_workload_of_no_messages_is_refused(mom, tmp_path):
    for text in ("", "ms,server,dests\n"):
        (tmp_path / "t.csv").write_text(text)
        said = mom("sim", "run", "bus.toml", "--workload", "t.csv", code=1).stderr
        assert said.startswith("Error: t.csv has no messages: a row is ms (of a day at most), server, and dest")


@pytest.mark.parametrize("row", ["0,paris", "0,paris,lyon,lyon", "1e300,paris,lyon", "nan,paris,lyon", "-1,paris,lyon"])
def test_a_row_that_is_no_message_is_refused(mom, tmp_path, row):
    (tmp_path / "t.csv").write_text(f"ms,server,dests\n{row}\n")
    said = mom("sim", "run", "bus.toml", "--workload", "t.csv", code=1).stderr
    assert said.startswith("Error: t.csv:2: a row is ms (of a day at most), server, and destinations")


def test_a_diagram_is_drawn_around_what_waits_or_what_is_asked_for(mom, tmp_path):
    mom("sim", "diagram", "ks", "--seed", "3", "--sends", "12", "--to", "a.svg")
    mom("sim", "diagram", "ks", "--seed", "3", "--sends", "12", "--around", "m2", "--to", "b.svg")
    assert "around m2" in (tmp_path / "b.svg").read_text() and (tmp_path / "a.svg").read_text().startswith("<svg")
    said = mom("sim", "diagram", "ks", "--around", "m99", "--to", "c.svg", code=1).stderr
    last = said.partition("the last is ")[2].strip()  # of those that were sent: others may come after it
    mom("sim", "diagram", "ks", "--around", last, "--to", "c.svg")
    beyond = f"m{int(last[1:]) + 1}"
    assert "no message" in mom("sim", "diagram", "ks", "--around", beyond, "--to", "c.svg", code=1).stderr
    assert "--servers 2" in mom("sim", "diagram", "fifo", "--to", "c.svg", code=2).stderr


def test_a_back_end_of_another_package_is_drawn_too(mom, tmp_path, monkeypatch):
    points = [EntryPoint("mine", "mombroker.ordering.rst:RST", registry.GROUP)]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    registry._plugged.cache_clear()
    try:
        mom("sim", "diagram", "mine", "--to", "mine.svg")
        assert "mine, 4 servers, seed 16: around m" in (tmp_path / "mine.svg").read_text()
        said = mom("sim", "diagram", "my", "--to", "my.svg", code=2).stderr
        assert "no ordering is named 'my'; there are abcast, daisy, fifo, ks, matrix, mine, " in said
    finally:
        registry._plugged.cache_clear()


def test_logs_of_a_bus_are_compared_and_drawn(mom, tmp_path):
    from mombroker.lab.communities import communities
    from mombroker.lab.recording import paced, record
    from mombroker.net import config

    topology = config.load(tmp_path / "bus.toml")
    record(topology, paced(communities(1, 9).sends(100), 500), tmp_path / "var")
    (tmp_path / "four").mkdir()
    for name in ("s1", "s2", "s3", "s4"):
        (tmp_path / "four" / name).symlink_to(tmp_path / "var" / name)
    words = ["sim", "compare", "bus.toml", "--log", "var", "--ordering", "ks,vector", "--layout", "flat"]
    rows = json.loads(mom(*words, "-o", "json").stdout)
    assert [row["plan"] for row in rows] == ["the logs", "as it is", "under ks", "under vector", "domains as flat"]
    assert rows[0]["packets"] == rows[1]["packets"] and rows[-1]["hops"] == 1
    assert rows[1]["state_bytes"] == pytest.approx(rows[0]["state_bytes"], rel=0.05) and rows[0]["state_bytes"] > 1000
    played = ["sim", "run", "bus.toml", "--workload", "var", "-o", "json"]
    whole = json.loads(mom(*played, "--network", "logs").stdout)[-1]
    assert (whole["hops"], whole["p50_ms"], whole["p99_ms"]) == tuple(
        rows[1][name] for name in ("hops", "p50_ms", "p99_ms")
    )
    assert json.loads(mom(*played).stdout)[-1]["messages"] == whole["messages"]
    assert "--workload var does not take --bytes\n" in mom(*played, "--network", "wires", "--bytes", "5", code=2).stderr
    words[-3:] = ["fifo", "--layout", "flat"]
    assert "between two servers" in mom(*words, code=1).stderr
    (tmp_path / "four.toml").write_text(mom("topology", "generate", "flat", "4").stdout)
    four = mom("sim", "compare", "four.toml", "--log", "four", code=1).stderr
    assert "s7, s8, s9: no server of four.toml" in four and "has no store" not in four
    some = mom("sim", "compare", "bus.toml", "--log", "four", "--ordering", "", "--layout", "", "-o", "json")
    assert [row["plan"] for row in json.loads(some.stdout)] == ["as it is"]
    said = "mom: four has no store of s5, s6, s7, s8, s9: what they sent and what they paid is left out\n"
    assert some.stderr == said
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "s1").symlink_to(tmp_path / "var" / "s1")
    one = mom("sim", "compare", "bus.toml", "--log", "one", "--ordering", "", "--layout", "", "-o", "json")
    (row,) = json.loads(one.stdout)
    assert row["p50_ms"] == int(row["p50_ms"]) <= row["p99_ms"] and "of no link both ends are in the logs" in one.stderr
    lines = mom("log", "tail", "-f", "bus.toml", "-o", "json").stdout.splitlines()
    far = next(each for each in map(json.loads, lines) if each["kind"] == "react" and each["hops"])
    mom("log", "diagram", f"{far['origin']}#{far['number']}", "-f", "bus.toml", "--to", "why.svg")
    assert far["origin"] in (tmp_path / "why.svg").read_text()
    (tmp_path / "var" / "s3").rename(tmp_path / "elsewhere")
    message = f"{far['origin']}#{far['number']}" if far["origin"] != "s3" else "s1#1"
    said = mom("log", "diagram", message, "-f", "bus.toml", "--to", "why.svg").stderr
    assert said == "mom: the store of s3 is not on this machine\nwrote why.svg\n"
    assert "is in the logs" in mom("log", "diagram", "s1#999999", "-f", "bus.toml", "--to", "x.svg", code=1).stderr
    (tmp_path / "elsewhere").rename(tmp_path / "var" / "s3")
    for name in ("s2", "s5"):
        with sqlite3.connect(tmp_path / "var" / name / "store.sqlite") as db:
            db.execute("DELETE FROM log WHERE id < (SELECT max(id) * 6 / 10 FROM log)")
    some = mom("sim", "compare", "bus.toml", "--log", "var", "--ordering", "", "--layout", "", "-o", "json")
    then, again = json.loads(some.stdout)
    assert (then["packets"], then["hops"]) == (again["packets"], again["hops"])
    assert "mom: the oldest records of s2, s5 are gone: " in some.stderr
    assert "messages are left out, whose sends are gone\n" in some.stderr and "but not counted; " in some.stderr


@pytest.fixture
def recorded(mom, tmp_path):
    """The stores of nine servers, in `var`. Gives `mom sim compare` on them, with bus.toml as it is."""
    from mombroker.lab.communities import communities
    from mombroker.lab.recording import paced, record
    from mombroker.net import config

    record(config.load(tmp_path / "bus.toml"), paced(communities(1, 9).sends(60), 500), tmp_path / "var")

    def compare(file="bus.toml"):
        said = mom("sim", "compare", file, "--log", "var", "--ordering", "", "--layout", "", "-o", "json")
        return [row["plan"] for row in json.loads(said.stdout)], said.stderr

    return compare


def prune(folder, server, where):
    with sqlite3.connect(folder / "var" / server / "store.sqlite") as db:
        db.execute(f"DELETE FROM log WHERE {where}")


def test_what_a_server_without_a_log_has_paid_is_not_in_a_row(recorded, tmp_path):
    assert recorded() == (["the logs", "as it is"], "")
    prune(tmp_path, "s4", "true")
    plans, said = recorded()
    assert plans == ["as it is"]
    assert said == "mom: there is nothing in the log of s4: what they sent and what they paid is left out\n"


def test_logs_that_end_at_different_times_are_told_of(recorded, tmp_path):
    prune(tmp_path, "s4", "id > (SELECT max(id) / 2 FROM log)")
    plans, said = recorded()
    assert plans == ["the logs", "as it is"]
    assert "are not in all logs that they must be in: one ends before the others" in said
    assert "they are played, but not counted\n" in said and "before are played" not in said


def test_clocks_that_begin_at_zero_are_told_of(recorded, tmp_path):
    prune(tmp_path, "s4", "id < (SELECT max(id) / 2 FROM log)")
    _, said = recorded()
    assert "the bytes of control and of state are low, by what clocks had counted before\n" in said


def test_domains_that_the_bus_has_not_run_are_told_of_in_one_line(recorded, tmp_path):
    text = (tmp_path / "bus.toml").read_text()
    matrix = 'ordering = "matrix"\n\n[domains.d2]'  # of d1
    for name, old, new, there in (
        ("renamed.toml", "[domains.d1]", "[domains.e1]", "domain d1 is gone and domain e1 is new"),
        ("ordered.toml", matrix, matrix.replace("matrix", "ks"), "domain d1 is ordered by ks in place of matrix"),
    ):
        assert old in text
        (tmp_path / name).write_text(text.replace(old, new))
        assert recorded(name) == (
            ["the logs", "as it is"], f"mom: the bus has not run the domains of {name}: there {there}\n"
        )  # fmt: skip


def test_domains_that_the_bus_had_before_are_told_of(recorded, tmp_path):
    """The stores are of the domains of today; their logs reach back further."""
    from mombroker.core.identity import identity
    from mombroker.net import config

    text = (tmp_path / "bus.toml").read_text()
    (tmp_path / "bus.toml").write_text(text.replace("[domains.d1]", "[domains.e1]"))
    topology = config.load(tmp_path / "bus.toml")
    for name in topology.servers:
        with sqlite3.connect(tmp_path / "var" / name / "store.sqlite") as db:
            db.execute("DELETE FROM meta WHERE key LIKE 'digest:%'")
            for key, value in identity(topology, name).items():
                db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))
    d1 = topology.domains["e1"].members
    there = [f"domain d1 is without {name}" for name in d1]
    assert recorded()[1] == (
        f"mom: the bus has not run the domains of bus.toml: there {', '.join(there[:-1])} and {there[-1]}\n"
    )


def test_a_bus_of_one_server_has_nothing_to_compare(mom, tmp_path):
    (tmp_path / "one.toml").write_text('[bus]\nname = "one"\n[servers.a]\nlisten = "127.0.0.1:7001"\ndata = "var/a"\n')
    (tmp_path / "var").mkdir()
    for words in (["compare", "one.toml", "--log", "var"], ["run", "one.toml"]):
        assert mom("sim", *words, code=1).stderr == (
            "Error: a bus of one server sends nothing over a link: name a topology of two or more\n"
        )


def test_a_change_is_shown_by_both_ways(mom, monkeypatch):
    words = ["sim", "change", "join", "--members", "6", "--runs", "2", "-o", "json"]
    rows = json.loads(mom(*words).stdout)
    assert [(row["by"], row["members"], row["runs"]) for row in rows] == [("protocol", 6, 2), ("freeze", 6, 2)]
    assert rows[0]["paused"] == 0 and rows[1]["paused"] == 7 and json.loads(mom(*words).stdout) == rows

    def wrong(*_):
        raise changes.Wrong("join by protocol, seed 1: the change does not end")

    monkeypatch.setattr(changes, "measure", wrong)
    assert mom(*words, code=4).stderr == "Error: join by protocol, seed 1: the change does not end\n"


def test_domains_run_as_process_groups(mom, tmp_path, monkeypatch):
    (tmp_path / "one.toml").write_text(mom("topology", "generate", "flat", "5").stdout)
    words = ["sim", "run", "one.toml", "--ordering", "isis", "--sends", "80", "-o", "json"]
    (quiet,) = json.loads(mom(*words).stdout)
    assert quiet["views"] == quiet["flush"] == 0 and quiet["abcast"] >= quiet["sets_order"] > 0 and quiet["p99_ms"] > 0
    (fewer,) = json.loads(mom(*words, "--batch", "8").stdout)
    assert fewer["sets_order"] < quiet["sets_order"]
    (changed,) = json.loads(mom(*words, "--changes", "3", "--flush", "coordinator").stdout)
    assert changed["views"] >= 3 and 0 < changed["flush"] <= 2 * 8 * changed["views"]
    rows = json.loads(mom("sim", "run", "bus.toml", *words[3:], "--rule", "conservative").stdout)
    assert [row["domain"] for row in rows] == ["backbone", "d1", "d2", "d3"] and max(row["fields"] for row in rows) <= 3
    whole = json.loads(mom("sim", "run", "bus.toml", *words[3:]).stdout)
    assert max(row["fields"] for row in whole) > 3
    flushed = json.loads(mom("sim", "run", "bus.toml", *words[3:], "--rule", "epochs").stdout)
    assert all(row["views"] and row["flush"] for row in flushed)
    monkeypatch.setattr(group.Group, "faults", lambda self: ["late: it is broken"])
    assert "seed 1: late: it is broken" in mom(*words, code=4).stderr


def test_what_process_groups_do_not_take_is_refused(mom):
    words = ["sim", "run", "bus.toml", "--ordering", "isis"]
    assert "does not take --bytes" in mom(*words, "--bytes", "5", code=2).stderr
    assert "one domain" in mom(*words, "--changes", "1", code=2).stderr
    assert "exponential or uniform" in mom(*words, "--network", "wires", code=2).stderr
    assert "does not take --total" in mom("sim", "run", "bus.toml", "--total", "1", code=2).stderr


def test_an_ordering_that_there_is_not_is_told_those_that_there_are(mom):
    for words in (["run", "bus.toml", "--ordering", "Isis"], ["diagram", "Isis", "--to", "x.svg"]):
        said = mom("sim", *words, code=2).stderr
        assert "no ordering is named 'Isis'; there are abcast" in said and said.endswith("isis\n")


def test_a_process_group_is_drawn_with_its_views_and_its_order(mom, tmp_path):
    mom("sim", "diagram", "isis", "--seed", "3", "--to", "isis.svg")
    drawn = (tmp_path / "isis.svg").read_text()
    assert "view 2: s1 s2 s3" in drawn and "m2 #1" in drawn and "place in its total order" in drawn
    for what, option in (("isis", "--multicasts"), ("ks", "--changes")):
        said = mom("sim", "diagram", what, option, "1", "--to", "x.svg", code=2).stderr
        assert f"{what} does not take {option}" in said
    small = ["sim", "diagram", "isis", "--servers", "2", "--to", "two.svg"]
    assert "--changes 0" in mom(*small, code=2).stderr
    mom(*small, "--changes", "0")
