"""The table is a rendering of the dicts that JSON shows; what is not a terminal gets neither borders nor colour."""

import json
import os
import pty
import re
import resource
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from mombroker.admin.cli import output
from mombroker.admin.cli.main import cli, commands
from mombroker.admin.cli.output import show, show_one
from mombroker.core.errors import MomError

LEAVES = {name: command for name, command in commands() if not isinstance(command, click.Group)}
ROWS = [{"server": "a", "held": 3, "full": True}, {"server": "long name", "held": 10, "peers": ["x", "y"]}]


def test_a_plain_table_is_aligned_and_has_all_columns(capsys):
    show(ROWS, "table", "")
    assert capsys.readouterr().out.splitlines() == [
        "server     held  full  peers",
        "a          3     yes",
        "long name  10          x, y",
    ]


def test_columns_are_chosen_and_ordered(capsys):
    show(ROWS, "table", "held,server")
    assert capsys.readouterr().out.splitlines() == ["held  server", "3     a", "10    long name"]
    show(ROWS, "json", "held")
    assert json.loads(capsys.readouterr().out) == [{"held": 3}, {"held": 10}]


def test_default_columns_are_for_the_table_only(capsys):
    show(ROWS, "table", "", "server,absent")
    assert capsys.readouterr().out.splitlines() == ["server", "a", "long name"]
    show(ROWS, "json", "", "server")
    assert json.loads(capsys.readouterr().out) == ROWS


def test_any_keys_of_the_dicts_in_an_agents_fields_are_shown(capsys):
    record = {"fields": {"seen": {1: "a", b"k": [{b"\xff": 2}], "t": 3}}}
    show_one(record, "table")
    assert capsys.readouterr().out == "fields  seen=1=a, k=\\xff=2, t=3\n"
    show_one(record, "json")
    assert json.loads(capsys.readouterr().out) == {"fields": {"seen": {"1": "a", "k": [{"\\xff": 2}], "t": 3}}}


def test_what_a_terminal_would_obey_is_shown_escaped(capsys):
    show_one({"name": "a\x1b[2Jb\tc\u202e", "text": "two\nlines, é"}, "table")
    assert capsys.readouterr().out == "name  a\\x1b[2Jb\\tc\\u202e\ntext  two\nlines, é\n"


def test_times_are_iso_8601_and_spans_are_seconds_but_in_json_they_are_numbers(capsys):
    record = {
        "last_seen": 1_772_366_400_123_456_789,
        "due": 0,
        "timestamp": 1_772_366_400_123,
        "held_longest_ns": 1_500_000_000,
    }
    show([record, {"link": {"until": 1_772_366_400_000_000_000}}], "table", "")
    header, first, second = (re.split("  +", line) for line in capsys.readouterr().out.splitlines())
    assert first == ["2026-03-01T12:00:00.123Z", "2026-03-01T12:00:00.123Z", "1.500 s"]
    assert second == ["", "until=2026-03-01T12:00:00.000Z"]
    show_one(record, "json")
    assert json.loads(capsys.readouterr().out) == record


def test_lists_of_records_within_a_record_are_tables_of_their_own(capsys):
    record = {"queue": "q", "consumers": [{"proxy": "a", "credit": 7}], "waits": [], "peers": ["x", "y"]}
    show_one(record, "table")
    assert capsys.readouterr().out.splitlines() == [
        "queue  q", "waits", "peers  x, y", "", "consumers", "proxy  credit", "a      7",
    ]  # fmt: skip
    show_one(record, "table", "consumers")
    assert capsys.readouterr().out.splitlines() == ["proxy  credit", "a      7"]


def test_an_unknown_column_is_wrong_usage_and_names_the_known_ones():
    with pytest.raises(click.UsageError, match="no column 'held_up'; there are server, held, full, peers"):
        show(ROWS, "table", "held_up")


def test_no_rows_print_nothing_or_an_empty_array(capsys):
    show([], "table", "any")
    assert capsys.readouterr().out == ""
    show([], "json", "any")
    assert json.loads(capsys.readouterr().out) == []


def test_one_record(capsys):
    show_one({"name": "x", "state": {"a": 1}, "blob": b"\xff"}, "table")
    assert capsys.readouterr().out.splitlines() == ["name   x", "state  a=1", "blob   \\xff"]
    show_one({"name": "x", "blob": b"\xff"}, "json", "blob")
    assert json.loads(capsys.readouterr().out) == {"blob": "\\xff"}


def test_a_terminal_gets_a_table_with_borders():
    ours, its = pty.openpty()
    code = "from mombroker.admin.cli.output import show; show([{'name': 'a[b]', 'n': 1}], 'table', '')"
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    subprocess.run([sys.executable, "-c", code], stdout=its, env=env, check=True)
    os.close(its)
    text = os.read(ours, 10_000).decode()
    assert "│" in text and "a[b]" in text


@pytest.mark.parametrize("words", [
    ["sim", "diagram", "ks", "--to"], ["log", "diagram", "s1#1", "--to"], ["paper", "report", "--to"],
    ["analyze", "--html"], ["topology", "advise", "--out"],
])  # fmt: skip
def test_a_file_that_cannot_be_written_is_refused_before_the_work(words, tmp_path, monkeypatch):
    """No topology file is here, and no matplotlib: any work would fail in another way."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(cli, [*words, "nowhere/x"])
    line = "Error: nowhere/x cannot be written: nowhere: no such file or directory\n"
    assert (result.exit_code, result.stderr) == (1, line)


@pytest.mark.parametrize("words", [
    ["sim", "diagram", "ks", "--to"], ["log", "diagram", "s1#1", "--to"], ["paper", "report", "--to"],
    ["analyze", "--html"], ["topology", "advise", "--out"], ["log", "export", "--to"],
])  # fmt: skip
def test_a_dash_is_not_the_name_of_a_file(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, [*words, "-"])
    line = "Error: - is not the name of a file here: write ./- if you mean one that is called so\n"
    assert (result.exit_code, result.stderr, [*tmp_path.iterdir()]) == (1, line, [])


@pytest.mark.parametrize(("words", "name", "said"), [
    (["sim", "diagram", "ks", "--to"], "x.png", "x.png would be SVG by another name: call it x.svg"),
    (["log", "diagram", "s1#1", "--to"], "x.PDF", "call it x.svg"),
    (["paper", "report", "--to"], "x.pdf", "call it x.html"),
    (["analyze", "--html"], "a.b.json", "call it a.b.html"),
    (["topology", "advise", "--out"], "x.json", "call it x.toml"),
    (["topology", "generate", "flat", "3", "--out"], "x.json", "call it x.toml"),
    (["topology", "import", "no.xml", "--out"], "x.xml", "call it x.toml"),
    (["bench", "pingpong", "--csv"], "x.json", "call it x.csv"),
    (["bench", "pingpong", "--png"], "x.html", "call it x.png"),
])  # fmt: skip
def test_a_file_whose_name_says_another_form_is_refused_before_the_work(words, name, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, [*words, name])
    assert (result.exit_code, [*tmp_path.iterdir()]) == (1, []) and said in result.stderr


def test_a_file_of_any_other_name_is_taken(tmp_path):
    for name in ("x", "x.svg", "x.1", "x.SVG", "v1.2"):
        assert output.Target("svg").convert(str(tmp_path / name), None, None) == tmp_path / name


@pytest.mark.parametrize("name", LEAVES)
def test_every_option_that_names_a_file_to_write_is_checked_before_the_work(name):
    """That of `mom tls init` is beside the topology file, and checked when that is known."""
    for param in LEAVES[name].params if name != "mom tls init" else ():
        if isinstance(param.type, click.Path) and {"--to", "--out", "--html", "--csv", "--png"} & {*param.opts}:
            assert isinstance(param.type, output.Target) and (param.type.forms or param.type.dir_okay)


def test_a_topology_file_that_is_there_is_refused_before_the_work(tmp_path, monkeypatch):
    """No log is here: the work would fail in another way."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "better.toml").write_text("mine")
    result = CliRunner().invoke(cli, ["topology", "advise", "--out", "better.toml"])
    line = "Error: better.toml is there already: delete it, or choose another name\n"
    assert (result.exit_code, result.stderr) == (1, line)


def test_a_back_end_that_there_is_not_is_refused_before_the_work(tmp_path):
    """No log is here: the work would fail in another way."""
    pytest.importorskip("networkx", reason="advice needs the extra spark")
    file = tmp_path / "bus.toml"
    assert CliRunner().invoke(cli, ["topology", "generate", "flat", "3", "--out", str(file)]).exit_code == 0
    result = CliRunner().invoke(cli, ["topology", "advise", str(file), "--back-ends", "fifo,nosuch"])
    assert result.exit_code == 1 and "no ordering back end is named 'nosuch': choose one of" in result.stderr


@pytest.mark.parametrize("words", [["paper", "run", "ks", "--folder"], ["log", "export", "--to"]])
def test_a_folder_that_cannot_be_made_is_refused_before_the_work(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = CliRunner().invoke(cli, [*words, "file/x/y"])
    assert (result.exit_code, result.stderr) == (1, "Error: file/x/y cannot be written: file: not a directory\n")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_is_there_may_be_written_again_and_what_is_not_is_left_alone(tmp_path):
    target, folder = output.Target(), output.Target(folder=True)
    assert target.convert(tmp_path / "new", None, None) == tmp_path / "new" and not [*tmp_path.iterdir()]
    assert folder.convert(tmp_path / "a" / "b", None, None) == tmp_path / "a" / "b" and not [*tmp_path.iterdir()]
    (tmp_path / "old").write_text("old")
    assert target.convert(str(tmp_path / "old"), None, None).read_text() == "old"


@pytest.mark.parametrize("was", [None, "as it was"])
def test_a_full_disk_leaves_a_file_as_it_was_and_nothing_half_written(tmp_path, was):
    """No file may become longer than 4 kB, as if there were no room."""
    target = tmp_path / "a.svg"
    if was is not None:
        target.write_text(was)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(MomError, match="a.svg cannot be written: file too large"):
            output.write(target, "x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [each.read_text() for each in tmp_path.iterdir()] == [was] * (was is not None)


def test_a_link_and_a_device_are_written_and_stay(tmp_path, capsys):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "null").symlink_to(os.devnull)
    for name in ("link", "null"):
        output.write(tmp_path / name, "text")
    assert (tmp_path / "file").read_text() == "text" and not (tmp_path / "file").is_symlink()
    assert {each.name for each in tmp_path.iterdir()} == {"file", "link", "null"}
    assert (tmp_path / "link").is_symlink() and not os.path.isfile(os.devnull)


def test_a_dead_letter_with_a_time_that_is_no_number_is_shown():
    from mombroker.admin.cli.dlq import _letter

    assert _letter("a", "DLQ.q", {"properties": {"dead-letter-time": "²"}})["time"] == "²"
