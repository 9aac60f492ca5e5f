"""The example is run as its text says, only smaller."""

import runpy
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mombroker.admin.cli.main import cli
from mombroker.net import config
from tests.snippets import commands, fenced, program, shell

EXAMPLE = Path(__file__).parents[3] / "examples" / "cost_analysis.py"
pytestmark = pytest.mark.spark


def test_the_example_tells_the_costs_and_leaves_a_bus_that_the_commands_read(spark, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["cost_analysis.py", "demo", "--servers", "6", "--messages", "60"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    (total,) = (line.split() for line in lines if line.endswith("on the wire"))
    assert total[0] == total[6] and int(total[0]) > 0
    assert [line.split()[0] for line in lines if ", replayed " in line] == ["current", "flat", "bus", "proposed"]
    with pytest.raises(SystemExit):  # a second bus would go on in the stores of the first
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "name a new folder" in capsys.readouterr().err

    bus = config.load(Path("demo/bus.toml"))
    assert {Path(server.data) for server in bus.servers.values()} == {*(tmp_path / "demo" / "var").iterdir()}
    run = CliRunner().invoke(cli, ["log", "export", "demo/bus.toml", "--to", "again", "--copy"])
    assert run.exit_code == 0, run.output
    assert {path.name for path in Path("again").rglob("server=*")} == {f"server={name}" for name in bus.servers}


def test_the_planner_has_three_answers(spark, arrow, played, tmp_path, monkeypatch, capsys):
    from mombroker.admin.analysis import export, stores

    list(export.export(stores.read(played.folder), tmp_path))
    monkeypatch.setattr(sys, "argv", ["planner.py", str(tmp_path), "0.05"])
    runpy.run_path(str(EXAMPLE.with_name("planner.py")), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == [
        "The dearest hours of links", "Who sends most", "Of the time that messages take from server to server",
    ]  # fmt: skip
    assert sum(int(line.split()[0]) for line in lines if "could be saved" in line) in (99, 100, 101)


def test_the_stream_of_the_docs_has_the_holds_of_each_minute(spark, arrow, played):
    text = fenced("docs/cost-analysis.md", "python", "withWatermark")
    query = text.replace(".start()", ".trigger(availableNow=True).start()").replace(
        '"bus.toml"', repr(str(played.file))
    )
    assert "availableNow" in query and "bus.toml" in query
    names: dict[str, object] = {}
    exec(compile(query, "docs/cost-analysis.md", "exec"), names)
    running = names["query"]
    running.awaitTermination()  # type: ignore[attr-defined]
    found = spark.table("holds").selectExpr("sum(held)", "sum(seconds)").first()
    came = [r for each in played.written.values() for commit in each for r in commit.records
            if r.peer and r.received and r.delivered > r.received and r.kind in ("react", "forward")]  # fmt: skip
    assert found[0] == len(came) > 0
    assert found[1] == pytest.approx(sum(r.delivered - r.received for r in came) / 1e9)


@pytest.mark.long
def test_what_the_docs_show_of_it(tmp_path):
    """docs/cost-analysis.md, each line and program by a process of its own."""
    shutil.copytree(EXAMPLE.parent, tmp_path / "examples", ignore=shutil.ignore_patterns("var", "__pycache__"))
    shell(commands("docs/cost-analysis.md", "examples/cost_analysis.py demo"), tmp_path)
    assert (tmp_path / "demo" / "report.html").exists() and (tmp_path / "demo" / "better.toml").exists()
    for words, column in (('"exported"', "|hold"), ('.load("bus.toml")', "|server")):
        shown = program(fenced("docs/cost-analysis.md", "python", words), tmp_path / "demo")
        assert column in shown.replace(" ", "")
