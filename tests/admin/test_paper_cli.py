"""`mom paper`: what it prints and writes, and that nothing is run twice."""

import csv
import json
import os
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from mombroker.admin.bench import pingpong
from mombroker.admin.cli import paper, reference
from mombroker.admin.cli.main import cli
from mombroker.admin.cli.paper import note
from mombroker.admin.cli.progress import duration
from mombroker.lab.papers import ks, plot, sweep
from mombroker.lab.papers.base import Figure, Panel, Table
from mombroker.lab.papers.report import NO_PICTURE


@pytest.fixture
def mom(tmp_path, monkeypatch):
    """The command line in a folder of its own, with runs so short that they tell nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ks, "QUICK", (60, 20))
    monkeypatch.setattr(sweep, "code", lambda name: "short")

    def run(*words, code=0):
        result = CliRunner().invoke(cli, ["paper", *words])
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def only_ks(monkeypatch):
    """A report of one paper, of few runs."""
    monkeypatch.setattr(sweep, "PAPERS", ("ks",))
    monkeypatch.setattr(ks, "QUICK", (30, 10))
    monkeypatch.setattr(ks, "XS", {key: ([50, 400] if key[0] == "5" else [4],) * 2 for key in ks.XS})
    monkeypatch.setattr(ks, "FLOORS", {})


def test_the_papers_are_listed_with_their_figures(mom):
    rows = json.loads(mom("list", "-o", "json").stdout)
    figures = {"overlay": [*map(str, range(3, 18)), "sustained"], "daisy": [*"6789"], "ks": [*"345678"],
               "groups": ["II-rpc", "II-stream", "III-rpc", "III-stream", "7", "order", "flush", "I", "conservative",
                          "compression", "V"],
               "domains": ["8", "9", "11", "12"]}  # fmt: skip
    assert [(row["paper"], row["figure"]) for row in rows] == [(name, at) for name in figures for at in figures[name]]
    assert [(row["paper"], row["figure"]) for row in rows if not row["claims"]] == [("overlay", "sustained")]


def test_a_run_prints_verdicts_writes_its_rows_and_is_kept(mom, tmp_path):
    pytest.importorskip("matplotlib")
    first = mom("run", "ks", "--figure", "5", "--processes", "1", "-o", "json")
    claims = json.loads(first.stdout)
    assert {claim["figure"] for claim in claims} == {"5"}
    assert [claim["claim"] for claim in claims] == [each.text for each in ks.PAPER.claims if each.figure == "5"]
    assert {claim["verdict"] for claim in claims} <= {"holds", "holds in part", "does not hold", "cannot be judged"}
    assert "26 runs, about" in first.stderr and "0 are there already" in first.stderr
    folder = tmp_path / "mom-papers"
    with (folder / "ks-quick-figure-5.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24 and {row["setting"] for row in rows} == {"S1", "S2", "S3", "S4"}
    assert {row["mimt"] for row in rows} == {"50", "400", "1200"} and all(float(row["ks"]) > 0 for row in rows)
    assert (folder / "ks-quick-figure-5.png").stat().st_size < 100_000
    kept = json.loads((folder / "ks-quick-figure-5.json").read_text())["ks"]
    assert [claim["verdict"] for claim in kept["claims"]] == [claim["verdict"] for claim in claims]
    both = [float(row["ks"]) for row in rows if row["setting"] == "S3" and row["mimt"] == "400"]
    mean, _, runs = kept["values"]["5"]["ks"]["S3"]["400"]
    assert runs == len(both) == 2 and mean == pytest.approx(sum(both) / 2, rel=1e-3)
    again = mom("run", "ks", "--figure", "5,5", "-o", "json")
    assert again.stdout == first.stdout and "0 runs" in again.stderr and "26 are there already" in again.stderr


def test_without_matplotlib_there_is_everything_but_the_picture(mom, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = mom("run", "ks", "--figure", "5", "--seeds", "1", "--processes", "1", "-o", "json")
    assert result.stderr.count("pip install 'mombroker[plots]'") == 1 and "cannot be judged" in result.stdout
    stem = "ks-quick-seeds-1-figure-5"
    names = [f"{stem}-means.csv", f"{stem}.csv", f"{stem}.json"]
    assert sorted(path.name for path in (tmp_path / "mom-papers").glob("*.*")) == names
    with (tmp_path / "mom-papers" / names[0]).open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["paper"], row["column"], row["runs"]) for row in rows} == {("ks", "ks", "1"), ("ks", "ks_bitmap", "1")}
    assert {(row["standard_error"], row["interval_95"]) for row in rows} == {("", "")}
    kept = json.loads((tmp_path / "mom-papers" / names[2]).read_text())["ks"]["values"]["5"]["ks"]
    assert {value[1] for curve in kept.values() for value in curve.values()} == {None}
    assert "one run of each point tells nothing of chance" in result.stdout


def test_ctrl_c_says_what_is_kept(mom, monkeypatch):
    done = []
    work = sweep.work

    def cut(name, params):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(params)
        return work(name, params)

    monkeypatch.setattr(sweep, "work", cut)
    result = mom("run", "ks", "--figure", "5", "--processes", "1", code=1)
    assert "stopped; 3 of 26 runs are kept" in result.stderr
    monkeypatch.setattr(sweep, "work", work)
    assert "23 runs, about" in mom("run", "ks", "--figure", "5", "--processes", "1").stderr


# A worker that still starts brings Ctrl-C upon all, itself too, as a terminal does: at that moment, on any machine. It
# has time to say what it should not, as its parent cannot end it before.
CUT = """
import os, signal
from mombroker.admin.cli.main import main

if __name__ == "__main__":
    main()
elif not os.path.exists("cut"):
    os.mkdir("cut")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGINT)
"""


def test_ctrl_c_while_the_workers_start_is_one_line(tmp_path):
    (tmp_path / "cut.py").write_text(CUT)
    command = [sys.executable, "cut.py", "paper", "run", "ks", "--figure", "3", "--full", "--processes", "2"]
    env = os.environ | {"PYTHONPATH": str(reference.ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, start_new_session=True, timeout=120
    )
    said = done.stderr.splitlines()
    assert (done.returncode, len(said)) == (1, 2), done.stderr
    assert said[1].startswith("Error: stopped; 0 of ") and (tmp_path / "cut").exists()


def test_a_worker_that_is_killed_is_one_line(mom, monkeypatch):
    def broken(*args):
        raise BrokenProcessPool("a process was terminated abruptly")
        yield

    monkeypatch.setattr(sweep, "_results", broken)
    said = mom("run", "ks", "--figure", "5", "--processes", "2", code=1).stderr
    assert said.splitlines()[-1].startswith("Error: a process was killed that did the runs; 0 of 26 runs are kept")


def test_a_run_that_spark_gives_up_is_one_line(mom, monkeypatch):
    protocol = pytest.importorskip("py4j.protocol")
    spark, ends = SimpleNamespace(), []

    def broken(found, *args):
        assert found is spark
        raise protocol.Py4JError("An error occurred while calling collectAndServe")
        yield

    monkeypatch.setattr(sweep, "_by_spark", broken)
    monkeypatch.setattr("mombroker.admin.analysis.session.session", lambda master: spark)
    monkeypatch.setattr("atexit.register", lambda *call: ends.append(call))
    said = mom("run", "ks", "--figure", "5", "--spark", "local[2]", code=1).stderr
    assert said.splitlines()[-1].startswith("Error: Spark has given up, and says above why; 0 of 26 runs are kept")
    assert ends == [(paper._end, spark)]


def test_another_reading_is_another_run_with_files_of_its_own(mom, tmp_path):
    mom("run", "ks", "--figure", "5", "--seeds", "1", "--processes", "1")
    result = mom("run", "ks", "--figure", "5", "--seeds", "1", "--reading", "slots,slots", "--processes", "1")
    assert "0 are there already" in result.stderr
    for stem, reading in (("ks-quick", "adopted"), ("ks-quick-slots", "slots")):
        with (tmp_path / "mom-papers" / f"{stem}-seeds-1-figure-5.csv").open() as file:
            assert {(row["paper"], row["reading"], row["seed"]) for row in csv.DictReader(file)} == {
                ("ks", reading, "1")
            }


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (["nobody"], "overlay, daisy, ks"),
        (["ks", "--figure", "2"], "3, 4, 5, 6, 7, 8"),
        (["ks", "--reading", "x"], "itself, copies, slots"),
    ],
)
def test_unknown_names_are_wrong_usage(mom, words, known):
    assert f"there are {known}" in mom("run", *words, code=2).stderr


@pytest.mark.parametrize("words", [["run", "ks", "--figure"], ["run", "ks", "--reading"], ["spread", "ks", "--figure"]])
@pytest.mark.parametrize("nothing", ["", " ", ","])
def test_a_list_of_nothing_is_wrong_usage(mom, words, nothing):
    assert f"{nothing!r} names nothing" in mom(*words, nothing, code=2).stderr


def test_a_paper_with_one_reading_says_so_and_the_others_list_theirs(mom):
    assert (
        "there is no reading 'x'; there are none but the adopted"
        in mom("run", "groups", "--reading", "x", code=2).stderr
    )
    rows = json.loads(mom("list", "-o", "json").stdout)
    assert {row["readings"] for row in rows if row["paper"] == "ks"} == {"itself, copies, slots"}
    assert {row["readings"] for row in rows if row["paper"] == "groups"} == {""}


def test_the_note_below_a_title_tells_of_all_runs():
    figure = Figure("title", "x", [], unit="sends")
    rows = [
        {"setting": "a", "x": x, "seed": seed, "sends": sends} for seed in (1, 2)
        for x, sends in enumerate((1000, 300, 4000))
    ]  # fmt: skip
    assert note("ks-quick", figure, rows) == "ks-quick: 2 runs a point of 300 to 4000 sends"
    assert note("ks-quick", figure, rows[:5]) == "ks-quick: 1 to 2 runs a point of 300 to 4000 sends"
    assert note("ks-quick", figure, rows[:1]) == "ks-quick: one run a point of 1000 sends"


def test_a_picture_draws_no_bars_without_intervals_and_nothing_where_there_is_nothing(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    drawn = []
    monkeypatch.setattr(Axes, "errorbar", lambda self, xs, ys, bars, **style: drawn.append((style["label"], bars)))
    monkeypatch.setattr(Axes, "get_legend_handles_labels", lambda self: ([Line2D([], [])], ["a"]))
    figure = Figure("title", "x", [Panel("y", {"v": ""}), Panel("z", {"v": ""}, without=["b"])])
    runs = {"a": (1, 2, 3), "b": (1, 1, 1)}
    table = Table({"figure": "1", "setting": name, "x": 1, "v": v} for name, each in runs.items() for v in each)
    plot.draw(tmp_path / "1.png", "1", figure, table, "")
    assert [label for label, _ in drawn] == ["a", "b", "a"] and [bool(bars) for _, bars in drawn] == [True, False, True]


def test_what_a_panel_leaves_out_is_a_setting_of_its_figure():
    left_out = 0
    for chosen in map(sweep.load, sweep.PAPERS):
        for name, each in chosen.figures.items():
            settings = {point.setting for point in chosen.points(name, False, (1,), {})}
            assert all({*panel.without} < settings for panel in each.panels)
            left_out += any(panel.without for panel in each.panels)
    assert left_out == 2


def test_durations_are_told_as_people_do():
    assert [duration(seconds) for seconds in (5, 600, 7200)] == ["5 s", "10 min", "2.0 h"]


@pytest.mark.parametrize(
    ("costs", "processes", "spark", "told"),
    [
        ([[120] * 16], 1, None, "16 runs, about 8 min of CPU time, 8 min by one process; 3 are there already"),
        ([[120] * 16], 2, None, "16 runs, about 8 min of CPU time, 4 min by 2 processes; 3 are there already"),
        ([[120] * 16], None, None, "16 runs, about 8 min of CPU time, 4 min by 2 processes; 3 are there already"),
        ([[120] * 16], 8, None, "16 runs, about 8 min of CPU time, 4 min by 8 processes; 3 are there already"),
        ([[960, 240, 240]], 8, None, "3 runs, about 6 min of CPU time, 4 min by 3 processes; 3 are there already"),
        ([[480], [960], []], 2, None, "2 runs, about 6 min of CPU time, 6 min by one process; 9 are there already"),
        ([[120] * 16], None, "yarn", "16 runs, about 8 min of CPU time; 3 are there already"),
        ([[]], 2, None, "0 runs; 3 are there already"),
    ],
)
def test_the_time_is_told_before_a_sweep_begins_as_this_machine_is_now(monkeypatch, costs, processes, spark, told):
    """Four times as fast as that where the costs were fitted, with two CPUs: a run needs one, and papers wait for each
    other."""
    monkeypatch.setattr("mombroker.admin.bench.figures.pace", lambda: 0.1e-6)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert paper._told([(each, 3) for each in costs], processes, spark) == told


def test_the_report_is_one_page_and_goes_on_where_it_stopped(mom, tmp_path, only_ks):
    pytest.importorskip("matplotlib")
    first = mom("report", "--processes", "1", "--to", "page.html")
    assert "1 paper: 56 runs, about" in first.stderr and "0 are there already" in first.stderr
    text = (tmp_path / "page.html").read_text()
    assert text.count("data:image/png;base64,") == 6 and "cannot be judged" in text
    assert "0 runs" in mom("report").stderr and (tmp_path / "mom-papers" / "report-quick.html").exists()


def test_the_report_without_matplotlib_has_everything_but_the_pictures(mom, tmp_path, only_ks, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = mom("report", "--processes", "1", "--to", "page.html").stderr.splitlines()
    assert said[-2:] == [
        "wrote page.json",
        "mom: matplotlib is not installed, so there is no picture: pip install 'mombroker[plots]'",
    ]
    text = (tmp_path / "page.html").read_text()
    assert text.count(NO_PICTURE) == 6 and "data:image" not in text and text.count(">cannot be judged<") > 6
    assert "matplotlib" not in "".join(said[:-1])


def test_the_report_tells_of_live_round_trips_if_their_file_is_there(mom, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    columns = ("rtt_ms", "clock_ms", "control_bytes", "hops", "cpu_s")
    monkeypatch.setattr(sweep, "PAPERS", ("domains",))
    monkeypatch.setattr(plot, "draw", lambda path, *what: path.write_bytes(b""))
    monkeypatch.setattr(sweep, "work", lambda name, params: dict.fromkeys(columns, float(params["n"])))
    live = tmp_path / "mom-papers" / "pingpong.json"
    live.parent.mkdir()
    live.write_text("nothing")
    said = mom("report", "--processes", "1", code=1).stderr
    assert said.splitlines() == [
        "Error: mom-papers/pingpong.json is not what mom bench pingpong -o json prints: make it anew, or delete it"
    ]
    case = {"kind": "remote", "clock": "ours", "layout": "bus", **dict.fromkeys(pingpong.GROWING, 1.0)}
    live.write_text(json.dumps([case | {"servers": n, "rtt_ms": n} for n in (10, 20, 50)]))
    mom("report", "--processes", "1")
    text = (live.parent / "report-quick.html").read_text()
    assert text.count("Live, as powers of n = 10 to 50: bus, clock ours: the time 1.00 ± 0.00, ") == 2  # figures 11, 12


def test_the_halves_of_the_runs_are_compared(mom):
    """Runs so short differ; and the figures of both halves are those that a run writes."""
    rows = json.loads(mom("spread", "ks", "--figure", "5", "--processes", "1", "--above", "0", "-o", "json").stdout)
    assert {row["column"] for row in rows} == {"ks", "ks_bitmap"} and len(rows) <= 12 * 2
    assert [row["off_pct"] for row in rows] == sorted((row["off_pct"] for row in rows), reverse=True)
    for row in rows:
        off = 200 * abs(row["one"] - row["two"]) / (row["one"] + row["two"])
        assert row["off_pct"] == pytest.approx(off, abs=0.1)  # of two numbers of four digits
    few = mom("spread", "ks", "--figure", "5", "--above", "1000")
    assert "0 of 24 values are apart by more than 1000 %" in few.stderr


def test_halves_of_what_nothing_is_drawn_for_are_refused_before_the_work(mom, tmp_path):
    said = mom("spread", "domains", "--figure", "8,11", code=1).stderr
    assert said == (
        "Error: nothing in 8, 11 of domains is drawn by chance: other seeds give the same, so there are no halves to "
        "compare\n"
    )
    assert not (tmp_path / "mom-papers").exists()


def test_only_what_is_drawn_by_chance_is_run_in_halves(mom, monkeypatch):
    ran = []
    monkeypatch.setattr(sweep, "run", lambda paper, points, *where: ran.extend(points) or [])
    said = mom("spread", "groups", "--figure", "V,compression").stderr
    assert said.startswith("nothing in V of groups is drawn by chance: other seeds give the same\n")
    assert {point.figure for point in ran} == {"compression"}


def test_the_page_and_its_values_have_places_of_their_own(mom, tmp_path):
    assert "call it page.html" in mom("report", "--to", "page.json", code=1).output
    (tmp_path / "page.json").mkdir()
    assert "page.json" in mom("report", "--to", "page.html", code=2).output
    assert not (tmp_path / "mom-papers").exists()  # nothing was run


@pytest.mark.parametrize("command", ["run", "spread"])
def test_columns_that_are_not_there_are_refused_before_the_work(mom, tmp_path, command):
    assert (
        "there is no column 'foo'; there are figure, " in mom(command, "ks", "--columns", "figure,foo", code=2).output
    )
    assert not (tmp_path / "mom-papers").exists()
