"""The table is a rendering of the dicts that JSON shows; what is not a terminal gets neither borders nor colour."""

import json
import os
import pty
import subprocess
import sys

import click
import pytest

from mombroker.admin.cli.output import show, show_one

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
    assert "┃" in text and "a[b]" in text
