"""Tables in a terminal of any width: numbers are whole, lines fit, and what has no room is named."""

import re
from importlib import import_module

import pytest

from mombroker.admin.cli import destinations, main, queue, subscription
from mombroker.admin.cli.output import text
from mombroker.admin.cli.table import fold, laid_out, listed, width_of
from tests.admin.processes import ROOT, in_terminal

WIDTHS = pytest.mark.parametrize("width", [40, 60, 80, 120])


def defaults():
    """The columns of the tables that commands show, by module."""
    for module in sorted({module for module, _, _ in main.COMMANDS.values()} | {"destinations"}):
        for name, value in vars(import_module(f"mombroker.admin.cli.{module}")).items():
            if name in ("BRIEF", "COLUMNS"):
                for columns in value.values() if isinstance(value, dict) else [value]:
                    yield pytest.param(
                        columns.split(",") if isinstance(columns, str) else [*columns], id=f"{module} {name}"
                    )


def numbers_in(lines):
    return re.findall(r"\d{7,}", "\n".join(lines))


@WIDTHS
@pytest.mark.parametrize("names", [*defaults()])
def test_no_table_of_a_command_breaks_a_number(names, width):
    """All columns are wide numbers but the first, which is a name, and the second, which has a number within."""
    rows = [{name: 10 ** (11 + at % 6) + 7 * at for at, name in enumerate(names)} for _ in range(3)]
    for row in rows:
        row |= {names[0]: "paris-of-the-north", names[1]: "sub:client-1234567890/news.of.the.world"}
    cells = [[text(row[name]) for name in names] for row in rows]
    lines, left_out = laid_out(names, cells, [False, False] + [True] * (len(names) - 2), width)
    shown = [name for name in names if name not in left_out]
    assert all(width_of(line) <= width for line in lines)
    assert shown == names[: len(shown)] and shown
    assert sorted(numbers_in(lines)) == sorted(numbers_in(cell for row in cells for cell in row[: len(shown)]))


@WIDTHS
def test_the_columns_that_a_user_has_chosen_are_all_shown(width):
    names = [f"column_{at}" for at in range(9)]
    cells = [[str(10**15 + at) for at in range(9)] for _ in range(2)]
    lines, left_out = laid_out(names, cells, [True] * 9, width, keep=True)
    assert left_out == [] and len(numbers_in(lines)) == 18
    assert all(width_of(line) <= width for line in lines)


@WIDTHS
def test_a_record_is_listed_in_any_width(width):
    pairs = [("max_attempts_of_a_message_at_most", "12345678901234567890"), ("policy", "max_bytes=123456789012, " * 9)]
    lines = listed(pairs, width)
    assert all(width_of(line) <= width for line in lines)
    assert numbers_in(lines) == ["12345678901234567890", *["123456789012"] * 9]


def test_borders_go_before_texts_are_folded_and_texts_before_columns():
    names, cells, numbers = ["name", "held_now"], [["a name of many words", "12345"]], [False, True]
    assert laid_out(names, cells, numbers, 35)[0] == [
        "┌──────────────────────┬──────────┐",
        "│ name                 │ held_now │",
        "├──────────────────────┼──────────┤",
        "│ a name of many words │    12345 │",
        "└──────────────────────┴──────────┘",
    ]
    assert laid_out(names, cells, numbers, 34)[0] == [
        "name                  held_now",
        "a name of many words     12345",
    ]
    assert laid_out(names, cells, numbers, 18) == (
        ["name      held_now", "a name       12345", "of many", "words"],
        [],
    )
    assert laid_out(names, cells, numbers, 10) == (["name", "a name of", "many words"], ["held_now"])


@WIDTHS
def test_no_name_is_broken_and_a_column_that_has_no_room_for_it_is_left_out(width):
    names = ["server", "queue", "topics", "dead_letter"]
    long = [f"queue:a{n}client-individualNACK/with" for n in (1, 2)]
    cells = [["paris", long[0], "news.of.the.world.today, b", long[1]], ["lyon", "queue:b", "sub:c:n", ""]]
    lines, left_out = laid_out(names, cells, [False] * 4, width)
    whole = "\n".join(lines)
    assert left_out == names[len(names) - len(left_out) :] and all(width_of(line) <= width for line in lines)
    shown = names[: len(names) - len(left_out)]
    assert len(shown) > 1 or width < 50
    for at, name in enumerate(shown):
        for cell in (row[at] for row in cells):
            assert all(word in whole for word in cell.split()), name
    lines = listed([("dead_letter", long[0])], width)
    assert long[0] in "\n".join(lines)


def test_a_sentence_gets_a_column_of_a_readable_width_or_none():
    names, sentence = (
        ["domain", "links", "survives"],
        "all but what is for who is down, or depends on what only they have",
    )
    for width in range(12, 100):
        lines, left_out = laid_out(names, [["centre", "2, 2", sentence]], [False] * 3, width)
        assert len(lines) <= 8 if left_out else "survives" in lines[0] + lines[1], (width, lines)


def test_a_header_is_broken_once_at_most():
    names = ["domain", "control_bytes_worst", "packets_to_all"]
    lines, left_out = laid_out(names, [["a", "1", "2"]], [False, True, True], 30)
    assert left_out == [] and lines == [
        "domain     control_   packets_",
        "        bytes_worst     to_all",
        "a                 1          2",
    ]


def test_columns_without_a_value_go_first():
    names, cells = ["name", "stomp", "domains"], [["paris", "", "core"]]
    assert laid_out(names, cells, [False] * 3, 14) == (["name   domains", "paris  core"], [])


@pytest.mark.parametrize(
    "whole, width, lines",
    [
        ("one two three", 7, ["one two", "three"]),
        ("var/lib/mombroker", 9, ["var/lib/", "mombroker"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("abc12345", 5, ["abc", "12345"]),
        ("12345678", 4, ["12345678"]),
        ("at 2026-03-01T12:00:00.000Z", 10, ["at", "2026-03-01T12:00:00.000Z"]),
        ("two\nlines", 9, ["two", "lines"]),
        ("", 5, [""]),
        ("日本語 日本", 6, ["日本語", "日本"]),
    ],
)
def test_a_text_is_broken_where_it_reads_best_and_never_in_a_number(whole, width, lines):
    assert fold(whole, width) == lines


def test_a_long_text_is_folded_in_one_pass():
    lines = fold("word " * 200_000, 40)
    assert " ".join(lines).split() == ["word"] * 200_000
    assert len(fold("9" * 300_000, 40)) < 300_000 // 40


RECORD = {"bus": "b", "allow": [], "servers": [{"server": "a" * 30, "note": "n" * 20}], "notes": []}


@pytest.mark.parametrize("columns, borders", [(80, True), (50, False)])
def test_all_tables_of_a_record_have_borders_or_none_has_and_what_is_empty_and_asked_for_is_none(columns, borders):
    code = f"from mombroker.admin.cli.output import show_one; show_one({RECORD!r}, 'table', 'bus,servers,notes')"
    lines = in_terminal(code, columns)
    assert ["│ notes │ none │", "notes  none"][not borders] in lines
    assert sum(line.startswith("┌") for line in lines) == (2 if borders else 0)


def test_the_line_on_columns_without_room_fits_too():
    rows = [{f"column_{at}": 10**12 for at in range(12)}]
    lines = in_terminal(f"from mombroker.admin.cli.output import show; show({rows!r}, 'table', '')", 60)
    assert any(line.startswith("mom: no room for column_") for line in lines)
    assert all(width_of(line) <= 60 for line in lines) and lines[-1].endswith("-o json")


@pytest.mark.parametrize(
    "words, columns", [(["-c", "costs"], "control_bytes"), (["-c", "servers,notes"], "listen"), ([], "ordering")]
)
def test_lists_within_a_record_are_tables_of_their_own(words, columns):
    """In a terminal of 80 columns, as the examples in the help of the command are run."""
    command = ["topology", "show", str(ROOT / "etc" / "mixed.toml"), *words]
    lines = in_terminal(f"from mombroker.admin.cli.main import cli; cli({command!r})", 80)
    shown = "\n".join(lines)
    assert len({kind for kind in "┌┏" if kind in shown}) <= 1, "one kind of border"
    assert columns.partition("_")[0] in shown
    assert len(lines) > 6 and all(width_of(line) <= 80 for line in lines)


@pytest.mark.parametrize(
    "columns, texts, needed",
    [
        (queue.COLUMNS, {"destination": "queue:a11client-individualNACK"}, "messages ready consumers"),
        (subscription.COLUMNS, {"name": "news", "client_id": "desk-of-ann", "topics": "topic:a.b"}, "messages"),
        (
            destinations.BRIEF,
            {"state": "ready", "body": "several words", "message": "7b100aa88f9b4c729e2c1fa894db7b3b-1",
             "destination": "queue:a11client-individualNACK"},
            "id state body",
        ),
    ],
)  # fmt: skip
def test_what_an_operator_looks_for_first_has_room_in_80_columns(columns, texts, needed):
    names = columns.split(",")
    lines, left_out = laid_out(
        names, [[texts.get(name, "7") for name in names]], [name not in texts for name in names], 80
    )
    assert not {*needed.split()} & {*left_out} and all(width_of(line) <= 80 for line in lines)
