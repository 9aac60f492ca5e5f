"""The measurements, with tiny sizes: every figure is there, counts are exact, and what is measured is what is meant."""

import csv
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from mombroker import ordering
from mombroker.admin.bench import clocks, domain, figures, orderings, pingpong, plot, replicas, stomp, stompload
from mombroker.admin.bench.bus import Bus
from mombroker.admin.cli import main
from mombroker.core.errors import MomError
from mombroker.core.layouts import build
from mombroker.ordering import matrix


def mom(*words, code=0):
    result = CliRunner().invoke(main.cli, ["bench", *map(str, words)])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def rows_of(*words):
    return json.loads(mom(*words, "-o", "json").stdout)


def test_pingpong_counts_what_a_round_trip_costs(tmp_path):
    table = tmp_path / "all.csv"
    words = ["--servers", 4, "--layout", "flat,chain", "--rounds", 3, "--passes", 1, "--folder", tmp_path]
    rows = rows_of("pingpong", *words, "--csv", table)
    assert [(row["kind"], row["layout"], row["hops"]) for row in rows] == [
        ("local", "flat", 0), ("local", "chain", 0), ("remote", "flat", 2), ("remote", "chain", 6),
        ("broadcast", "flat", 6), ("broadcast", "chain", 9),
    ]  # fmt: skip
    assert all(
        row["rtt_ms"] >= row["rtt_min_ms"] > 0 and row["cpu_ms"] > 0 and row["f_ms"] > 0 and row["c_us"] > 0
        for row in rows
    )
    written = list(csv.DictReader(table.open()))
    assert [(row["kind"], float(row["rtt_ms"])) for row in written] == [(row["kind"], row["rtt_ms"]) for row in rows]


def test_pingpong_tells_as_which_power_of_the_servers_each_figure_grows(monkeypatch, tmp_path):
    """Figures that are powers of n exactly; what is 0 somewhere has none, nor have two sizes."""

    def case(servers, layout="flat"):
        noisy = {"rtt_ms": 3.0 * servers * (1.1 if servers == 20 else 1.0), "cpu_ms": 2.0}
        counts = {"control_bytes": 5.0 * servers**2, "clock_rows": servers**0.5, "hops": servers - 10}
        row = dict.fromkeys(pingpong.GROWING, 1.0) | noisy | counts
        return {"kind": "remote", "clock": "ours", "layout": layout, "servers": servers, **row}

    cases = [case(10), case(20), case(40), case(10, "bus"), case(20, "bus")]
    monkeypatch.setattr(pingpong, "measure", lambda *args, **options: cases)
    rows = rows_of("pingpong")
    assert [row["servers"] for row in rows] == [10, 20, 40, 10, 20, "power", "power ±"]
    fit, either = ({name: value for name, value in row.items() if value is not None} for row in rows[-2:])
    assert fit == {
        "kind": "remote", "clock": "ours", "layout": "flat", "servers": "power", "rtt_ms": 1.0,
        "cpu_ms": 0.0, "entries": 0.0, "control_bytes": 2.0, "clock_rows": 0.5, "clock_bytes": 0.0,
    }  # fmt: skip
    assert either["control_bytes"] == 0 < either["rtt_ms"] == 1.01
    (tmp_path / "pingpong.json").write_text(json.dumps(rows))
    said = (
        "Live, as powers of n = 10 to 40: flat, clock ours: the time 1.00 ± 1.01, CPU 0.00 ± 0.00, bytes of stamps "
        "2.00 ± 0.00, rows of clocks 0.50 ± 0.00."
    )
    assert pingpong.live(tmp_path / "pingpong.json") == {"8": said, "12": said}


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[{}]", '[{"servers": 3}]', '{"servers": 3}', "null"])
def test_a_file_of_something_else_tells_of_no_live_bus(tmp_path, text):
    file = tmp_path / "pingpong.json"
    file.write_text(text)
    with pytest.raises(MomError, match="pingpong.json is not what mom bench pingpong -o json prints"):
        pingpong.live(file)


def test_the_full_image_writes_the_whole_matrix_each_time(tmp_path):
    words = ["--servers", 5, "--clock", "full-image", "--rounds", 4, "--passes", 1, "--folder", tmp_path]
    remote = next(row for row in rows_of("pingpong", *words) if row["kind"] == "remote")
    # The main server's commits of a send and of an answer may be one; each writes five rows, and what it told to whom.
    assert remote["hops"] == 2 and remote["entries"] >= 4  # more while the news of the warm-up spread
    assert remote["clock_rows"] >= 2 * 6


def test_hop_tells_cpu_on_both_sides_and_rate_with_the_log_and_without(tmp_path):
    rows = rows_of("hop", "--messages", 256, "--window", 128, "--rounds", 1, "--folder", tmp_path)
    assert [(row["window"], row["log"], row["messages"]) for row in rows] == [(128, True, 256), (128, False, 256)]
    for row in rows:
        assert min(row[key] for key in ("source_us", "sink_us", "source_c", "sink_c", "rate", "messages_per_f")) > 0


def test_a_desk_answers_all_that_waits_and_tells_what_each_takes(tmp_path):
    rows = rows_of("desk", "--messages", 300, "--bytes", "10,100", "--rounds", 1, "--folder", tmp_path)
    assert [(row["bytes"], row["messages"]) for row in rows] == [(10, 300), (100, 300)]
    assert all(row["agent_us"] >= row["agent_us_min"] > 0 and row["rate_max"] >= row["rate"] > 0 for row in rows)
    assert list(tmp_path.iterdir()) == []


def test_a_table_tells_what_a_turn_takes_beyond_one_without(tmp_path):
    rows = rows_of("table", "--rows", 1_500, "--turns", 100, "--window", 30, "--rounds", 1, "--folder", tmp_path)
    assert [(row["turn"], row["rows"]) for row in rows] == [
        ("reaction", 1_500), ("get", 1_500), ("set", 1_500), ("both", 1_500)
    ]  # fmt: skip
    assert rows[0]["beyond_us"] == 0 and all(
        row["us"] > 0 and row["beyond_us"] == pytest.approx(row["us"] - rows[0]["us"], abs=0.2) for row in rows
    )


def test_commit_tells_ratios_to_the_disk_and_the_cpu(tmp_path):
    rows = rows_of("commit", "--messages", "1,32", "--commits", 5, "--rounds", 2, "--folder", tmp_path)
    assert [row["messages"] for row in rows] == [1, 32]
    assert all(row["p99_ms"] >= row["p50_ms"] > 0 and row["cpu_us"] >= row["cpu_us_min"] > 0 for row in rows)
    assert rows[0]["p50_f"] == pytest.approx(
        rows[0]["p50_ms"] / rows[0]["f_ms"], rel=0.02, abs=0.02
    )  # of rounded figures


def test_recover_starts_idle_deep_and_many(tmp_path):
    rows = rows_of("recover", "--queued", 300, "--servers", 3, "--rounds", 1, "--folder", tmp_path)
    assert [row["case"] for row in rows] == ["idle", "300 queued", "3 servers"]
    assert all(row["ready_s"] > 0 and row["private_mb"] > 5 for row in rows)
    assert rows[1]["first_reaction_s"] > 0
    assert list(tmp_path.iterdir()) == []


PATTERNS = ("pair", "pingpong", "any", "mixed", "all")


def test_orderings_stand_beside_each_other_in_every_pattern():
    words = ["--ordering", "matrix,rst,overlay", "--members", 6, "--copies", 10, "--rounds", 1]
    rows = rows_of("orderings", *words)
    assert [(row["ordering"], row["pattern"]) for row in rows] == [
        (name, pattern) for pattern in PATTERNS for name in ("matrix", "rst", "overlay")
    ]  # fmt: skip
    of = {(row["ordering"], row["pattern"]): row for row in rows}
    assert all(of["rst", pattern]["integers"] == 36 for pattern in PATTERNS)
    assert of["matrix", "pair"]["control_bytes"] < of["matrix", "pingpong"]["control_bytes"]
    assert of["matrix", "pingpong"]["packets"] == 1 and of["matrix", "all"]["packets"] == 5
    assert of["matrix", "pingpong"]["control_bytes"] < of["matrix", "any"]["control_bytes"]
    assert of["overlay", "any"]["held_pct"] == 0 < of["rst", "all"]["held_pct"]
    assert all(min(row["copy_us"], row["packet_us"], row["rows_us"], row["row_bytes"]) > 0 for row in rows)


def test_the_loop_is_measured_with_few_and_many_waiting():
    rows = rows_of("loop", "--waiting", "1,50", "--events", 2000, "--rounds", 2)
    assert [row["waiting"] for row in rows] == [1, 50]
    assert all(row["rate_best"] >= row["rate"] > 0 and row["event_c"] > 0 for row in rows)


def test_a_schedule_is_played_again_as_it_was_made():
    made = orderings.Domain(orderings.Schedule(*swapped("vector", 5)), "mixed", seed=3).run(80)
    assert made.copies >= 80 and 0 < made.mark < len(made.acts)
    assert orderings.play(made, rows=True) > 0
    again = orderings.Domain(orderings.Schedule(*swapped("vector", 5)), "mixed", seed=3).run(80)
    assert again.acts == made.acts and again.control_bytes == made.control_bytes


def swapped(name, size):
    backend, options = orderings.variant(name)
    return backend, size, options


@pytest.mark.parametrize(
    "words",
    [
        ("pingpong", "--servers", "1"), ("pingpong", "--servers", "a"), ("pingpong", "--layout", "ring"),
        ("pingpong", "--clock", "mine"), ("hop", "--window", "63"), ("commit", "--messages", ""),
        ("orderings", "--members", "2"),
    ],
)  # fmt: skip
def test_wrong_sizes_are_wrong_usage(words):
    mom(*words, code=2)


def test_a_bus_that_does_not_start_says_why(tmp_path):
    topology = build({}, servers=["a"])
    topology.limits["max_store"] = topology.log["max_bytes"] = 1 << 30
    with pytest.raises(MomError, match="a does not start: .*max_store"):
        Bus(topology, [["a"]], folder=tmp_path).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_the_remote_echo_is_one_of_the_farthest():
    found = pingpong.targets(pingpong.topology_of("chain", 10))
    assert (found["local"], found["remote"], len(found["broadcast"])) == (["echo-s1"], ["echo-s10"], 10)


@pytest.fixture
def plain_clocks():
    before = matrix.Matrix
    yield
    matrix.Matrix = before


def test_a_measured_clock_is_counted_and_restores_as_written(plain_clocks):
    for clock in clocks.CLOCKS:
        clocks.use(clock)
        core = matrix.Matrix(0, 3)
        before = clocks.written.rows
        core.send([1], b"")
        rows, _ = core.dirty()
        assert clocks.written.rows - before == len(rows) == (2 if clock == "ours" else 4)
        assert matrix.Matrix.restore(0, 3, rows).value == core.value


def test_rounds_give_medians_beside_their_own_yardsticks(tmp_path, monkeypatch):
    looks = iter([0.004, 0.001, 0.002])
    monkeypatch.setattr(figures, "probe", lambda folder, records: next(looks))
    rounds = figures.Rounds(Path(tmp_path))
    for value in (3.0, 1.0, 8.0):
        rounds.look("x")
        rounds.add("x", value=value)
    assert (rounds.f_ms("x"), rounds.of("x", "value"), rounds.best("x", "value")) == (2.0, 3.0, 1.0)
    assert rounds.yardsticks("x")["c_us"] > 0


@pytest.mark.parametrize("options, build", [
    ("'--enable-shared' '--enable-optimizations'", "optimised"), ("'--prefix=/opt/x'", "not optimised"),
    ("'--prefix=/usr' '--with-dtrace'", "as the distribution has built it"), (None, "not optimised"),
])  # fmt: skip
def test_every_measurement_says_which_python_it_is_of(monkeypatch, options, build):
    monkeypatch.setattr(figures.sysconfig, "get_config_var", {"CONFIG_ARGS": options}.get)
    said = mom("loop", "--waiting", 1, "--events", 10, "--rounds", 1, "-o", "json").stderr
    assert said.startswith(f"python: {platform.python_implementation()} {platform.python_version()}, {build}")


ROWS = [
    {"kind": kind, "layout": layout, "clock": clock, "servers": servers, "rtt_ms": servers / 10, "cpu_ms": 1.0}
    for servers in (20, 10) for kind in pingpong.KINDS for layout in ("flat", "bus") for clock in clocks.CLOCKS
]  # fmt: skip


def test_a_line_of_a_figure_goes_by_size():
    found = plot.lines(ROWS, "remote", "rtt_ms")
    assert found["bus", "ours"] == [(10, 1.0), (20, 2.0)]
    assert len(found) == 4


def test_the_paper_s_figures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    plot.draw(tmp_path / "all.png", ROWS)
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MomError, match=r"mombroker\[plots\]"):
        plot.draw(tmp_path / "all.png", ROWS)


@pytest.mark.parametrize(
    ("name", "options", "pattern"),
    [
        ("matrix", {}, "pingpong"), ("rst", {}, "mixed"), ("ks", {}, "mixed"), ("ks", {"encoding": "bitmap"}, "mixed"),
        ("vector", {}, "mixed"), ("overlay", {}, "any"), ("daisy", {}, "any"),
    ],
)  # fmt: skip
def test_a_domain_costs_what_its_back_end_has_described(name, options, pattern):
    """The typical size under the typical traffic; no packet of any traffic is above the worst one."""
    cls, members = ordering.backend(name), tuple(f"s{k}" for k in range(12))
    told = cls.describe(members, options)
    for each in orderings.PATTERNS:
        made = orderings.Domain(orderings.Schedule(cls, 12, options), each, seed=2).run(400)
        mean = made.integers * 4 / made.packets
        assert mean <= told["control_bytes_worst"], each
        if each == pattern:
            assert told["control_bytes"] / 1.5 < mean < told["control_bytes"] * 1.5
            assert made.spread / made.messages >= told["packets"]
        if each == "all":
            assert made.spread == made.messages * told["packets_to_all"]


def test_stomp_counts_every_message_of_every_kind(tmp_path):
    # Enough messages for several ticks of 10 ms, in which the system counts the CPU time of another process.
    words = ["--messages", 2000, "--rounds", 1, "--folder", tmp_path, "--producers", 2, "--consumers", 2]
    flow = rows_of("stomp", *words, "--window", "1,64", "--bytes", "0,100", "--queues", 2)
    assert [(row["window"], row["bytes"]) for row in flow] == [(1, 0), (64, 0), (1, 100), (64, 100)]
    (backlog,) = rows_of("stomp", *words, "--kind", "backlog", "--window", 64, "--ack", "client")
    (fan_out,) = rows_of("stomp", *words, "--kind", "fan-out", "--window", 64, "--volatile")
    assert (fan_out["ack"], fan_out["persistent"], backlog["ack"], flow[0]["ack"]) == (
        "auto", False, "client", "client-individual",
    )  # fmt: skip
    by_stomp, by_amqp = rows_of("stomp", *words, "--window", 64, "--amqp", "--ids")
    assert [row.pop("broker") for row in (by_stomp, by_amqp)] == ["mombroker", "mombroker by AMQP"]
    nameless = rows_of("stomp", *words, "--window", 64, "--amqp", "--no-ids")
    assert [row["messages"] for row in nameless] == [2000, 2000] and all(row["rate"] > 0 for row in nameless)
    by_stomp["broker"] = by_amqp["broker"] = "mombroker"
    assert backlog["fill_rate"] > 0 and fan_out["fill_rate"] is None
    for row in [*flow, backlog, fan_out, by_stomp, by_amqp]:
        assert min(row[key] for key in ("rate", "broker_us", "broker_c", "client_us", "p50_ms", "f_ms", "c_us")) > 0
        assert row["p99_ms"] >= row["p50_ms"] and row["broker"] == "mombroker"


def test_at_a_given_rate_messages_are_sent_when_they_are_due(tmp_path):
    words = ["--rate", 500, "--messages", 300, "--rounds", 1, "--folder", tmp_path]
    (row,) = rows_of("stomp", *words)
    assert row["rate"] <= 502 and row["window"] == 0
    assert row["p999_ms"] >= row["p99_ms"] >= row["p50_ms"] > 0
    refused = mom("stomp", *words, "--url", "amqp://127.0.0.1:1", code=1)
    assert "at a given rate only brokers by stomp://" in refused.stderr


@pytest.mark.long
def test_a_server_with_replicas_is_measured_whole_and_with_one_that_is_ill(tmp_path):
    rows = rows_of("replicas", "--state", "whole,stopped,full", "--messages", 300, "--rounds", 1, "--folder", tmp_path)
    assert [(row["broker"], row["window"]) for row in rows] == [
        (state, window) for window in (1, 512) for state in ("whole", "stopped", "full")
    ]
    assert all(row["rate"] > 10 for row in rows)
    by_ones = [row for row in rows if row["window"] == 1]  # the others may end within a tick, 10 ms
    assert all(row["broker_us"] > row["first_us"] > 0 for row in by_ones), "the leader is one of several"
    assert by_ones[0]["first_x"] == 1 and by_ones[1]["first_x"] > 0, "beside the first state"


@pytest.mark.long
def test_replicas_are_measured_as_if_each_had_a_disk_of_its_own():
    words = ["--state", "plain,whole", "--window", 1, "--messages", 60, "--rounds", 1]
    for row in rows_of("replicas", *words, "--disk", 5):
        assert row["f_ms"] >= 5 and row["p50_ms"] >= 5, "each waits for its own"


def test_a_disk_of_its_own_is_in_memory(tmp_path, monkeypatch):
    refused = mom("replicas", "--disk", 5, "--folder", tmp_path, code=1)
    assert refused.stderr.strip().endswith("--disk keeps all in memory: leave --folder out")
    monkeypatch.setattr(replicas, "MEMORY", tmp_path / "none")
    with pytest.raises(MomError, match="needs .*none, a folder in memory, which this system does not have"):
        replicas.measure(["plain"], [], [], 1, 1, disk_ms=5.0)


@pytest.mark.long
def test_a_replica_is_replaced_while_messages_go_on(tmp_path):
    (row,) = rows_of("catchup", "--messages", 3_000, "--folder", tmp_path)
    assert row["messages"] == 3_000 and row["rate_meanwhile"] > 0 and row["new_peak_mb"] > 10


@pytest.mark.long
def test_growth_runs_each_curve_at_each_size(tmp_path):
    sizes = ["--destinations", "1,300", "--selectors", "1,3", "--connections", "0,2", "--backlog", "3000,4000"]
    rows = rows_of("growth", "--messages", 4000, "--rounds", 1, "--folder", tmp_path, *sizes)
    assert [(row["curve"], row["size"]) for row in rows] == [
        ("destinations", 1), ("destinations", 300), ("selectors", 1), ("selectors", 3), ("connections", 0),
        ("connections", 2), ("backlog", 3000), ("backlog", 4000),
    ]  # fmt: skip
    assert all(min(row[key] for key in ("broker_us", "broker_c", "times", "c_us", "f_ms")) > 0 for row in rows)
    assert [row["times"] for row in rows[::2]] == [1.0] * 4


def test_group_measures_who_stops_while_a_table_is_given(tmp_path):
    rows = rows_of("group", "--rows", 600, "--rate", 50, "--before", 0.2, "--folder", tmp_path)
    assert len(rows) == 6 and rows[-1]["who"] == "nobody: what only sleeps"
    assert all(row["worst_ms"] > 0 and row["rows"] == 600 for row in rows)


def test_order_measures_both_topics(tmp_path):
    rows = rows_of("order", "--messages", 300, "--rounds", 1, "--window", 50, "--folder", tmp_path)
    assert [row["order"] for row in rows] == ["causal", "total"] and rows[0]["of_plain"] == 1
    assert all(row["msg_per_s"] > 0 and row["receipt_p50_ms"] > 0 and row["f_ms"] > 0 for row in rows)


def test_brokers_are_named_by_their_urls_and_processes():
    assert stompload.broker("stomp://ann:a%40b@host:1") == stompload.Broker("host", 1, "ann", "a@b")
    assert stompload.broker("host") == stompload.Broker("host", 61613)
    assert stompload.broker("amqp://host") == stompload.Broker("host", 5672, amqp=True)
    (target,) = stomp.targets(["stomp://h:1"], [[os.getpid()]])
    assert (target.name, target.pids) == ("h:1", [os.getpid()])
    for wrong in ("http://host", "stomp://host:x", "stomp://"):
        with pytest.raises(MomError, match="is no broker"):
            stompload.broker(wrong)
    assert "2 --pid but 1 --url" in mom("stomp", "--url", "h", "--pid", 1, "--pid", 2, code=1).stderr
    assert "no broker at 127.0.0.1:1" in mom("stomp", "--url", "127.0.0.1:1", "--rounds", 1, code=1).stderr


def test_the_cpu_time_of_a_process_is_that_of_its_children_too():
    before = stomp.cpu_of([os.getpid()])
    code = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert stomp.cpu_of([os.getpid()]) - before >= 0.25
    with pytest.raises(MomError, match="there is no process"):
        stomp.cpu_of([2**22 + 1])


def test_what_a_process_writes_to_disks_is_what_the_system_says():
    path = Path("/proc/self/io")
    said = dict(line.split(": ") for line in path.read_text().splitlines())
    assert 0 <= int(said["write_bytes"]) <= stomp.written_by([os.getpid()])
    assert stomp.written_by([]) == 0


def test_a_percentile_counts_weights():
    waits = [(0.1, 1), (0.2, 98), (0.9, 1)]
    assert [stomp.weighted(waits, part) for part in (0.005, 0.5, 0.99, 1.0)] == [0.1, 0.2, 0.2, 0.9]


def test_a_receipt_has_come_when_it_is_read_and_not_when_the_next_message_has_left(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(stompload, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    class Slow(stompload.Sender):
        """It takes a second to send."""

        line = SimpleNamespace(send=lambda data: now.append(now.pop() + 1))

        def cut(self, at, some):
            return b""

    sender = Slow(4, 1)
    sender.start(2)
    for came in (5.0, 8.0):
        now[0] = came
        sender.answered(1)
    assert sender.waits == [(5.0, 1), (3.0, 1)] and sender.finished


@pytest.mark.long
def test_back_ends_of_a_domain_of_servers_take_turns():
    rows = domain.measure(["matrix", "abcast"], members=4, seconds=1.0, rounds=1)
    assert [row["ordering"] for row in rows] == ["matrix", "abcast"] and rows[0]["of_first"] == 1
    assert all(0 < row["least"] <= row["copies_s"] <= row["most"] for row in rows)
