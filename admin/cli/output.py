"""One way out: the table on the screen is a rendering of the same dicts that `-o json` prints."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.table import bordered, fits, fold, laid_out, listed
from mombroker.core.errors import MomError

Row = Mapping[str, Any]
FORMS = (
    "csv", "gif", "htm", "html", "jpeg", "jpg", "json", "md", "parquet", "pdf", "png", "sqlite", "svg", "toml", "txt",
    "xlsx", "xml", "yaml", "yml",
)  # fmt: skip
FORMER_COLUMNS = {"waiting": "ready", "held": "unacked"}
F = TypeVar("F", bound=Callable[..., Any])
NS = 1_000_000_000
TIMES = ("now", "last_seen", "until", "time", "timestamp", "expires", "due", "oldest")  # since 1970; `..._ns` is a span


def output_options(command: F) -> F:
    """Adds `-o` and `-c`; the command gets `output` and `columns` and hands them to `show`."""
    columns = click.option("-c", "--columns", metavar="A,B", default="", help="Only these columns, in this order.")
    return form_option("table")(columns(command))


def form_option(form: str) -> Callable[[F], F]:
    """Adds `-o`, which is this form or JSON."""
    forms = click.Choice([form, "json"])
    return click.option("-o", "--output", type=forms, default=form, show_default=True, help="Form of output.")


class Target(click.Path):
    """A file that the command writes, or with `folder` a folder that it writes to and may make. Refused before any work
    begins if it cannot be written: work may take hours. With `new` it must not be there already. `forms` are what it
    can be written in: a name that ends as those of another form is refused."""

    def __init__(self, *forms: str, folder: bool = False, new: bool = False):
        self.new, self.forms = new, forms
        super().__init__(path_type=Path, file_okay=not folder, dir_okay=folder, writable=True, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "-":  # elsewhere that is the terminal
            raise MomError("- is not the name of a file here: write ./- if you mean one that is called so")
        path = Path(str(super().convert(value, param, ctx)))  # it refuses what is there and not to be written
        ending = path.suffix[1:].lower()
        if self.forms and ending in FORMS and ending not in self.forms:
            raise MomError(
                f"{path} would be {self.forms[0].upper()} by another name: call it {path.stem}.{self.forms[0]}"
            )
        if self.new and path.exists():
            raise MomError(f"{path} is there already: delete it, or choose another name")
        if not path.exists() or path.is_file():
            place = path.resolve().parent if path.exists() else path.parent
            while self.dir_okay and not place.exists():
                place = place.parent  # it is to be made, too
            try:
                TemporaryFile(dir=place).close()
            except OSError as error:
                raise MomError(f"{path} cannot be written: {place}: {(error.strerror or str(error)).lower()}") from None
        return path


def write(path: Path, text: str) -> None:
    """A file that the user asked for. Raises MomError if it cannot be written."""
    with whole(path) as draft:
        draft.write_text(text, encoding="utf-8")
    click.echo(f"wrote {path}", err=True)


def new_topology(text: str, out: Path | None) -> None:
    """Print a topology file, or make it at `out`; one that is there already stays as it is."""
    from mombroker.net import config

    config.loads(text, Path.cwd(), "the new topology")
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise MomError(f"{out} is there already: delete it, or choose another name") from None
    except OSError as error:
        out.unlink(missing_ok=True)  # it was not there before
        raise MomError(f"{out} cannot be written: {(error.strerror or str(error)).lower()}") from None


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """What is to be written in the place of a file, which becomes that file at the end: should the disk be full, it
    stays as it was. A device is written itself. Raises MomError if it cannot be written."""
    draft = target = path.resolve()  # a link stays one
    if not target.exists() or target.is_file():
        draft = target.with_name(f".{os.getpid()}-{target.name}")
    try:
        yield draft
        if draft != target:
            draft.replace(target)
    except OSError as error:
        raise MomError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None
    finally:
        if draft != target:
            with suppress(OSError):
                draft.unlink()


def show(
    rows: Sequence[Row], output: str, columns: str, default: str = "", keep: bool = False, borders: bool = True
) -> None:
    """Print rows as a table, or as one JSON array. `default` names the table's columns if the user names none. On a
    terminal those of them that have no room are left out; the user's own are all shown, and with `keep` all.
    """
    known = list(dict.fromkeys(name for row in rows for name in row))
    chosen = choose(columns, known) if rows else []
    if output == "json":
        echo_json([{name: row.get(name) for name in chosen} for row in rows] if chosen else list(rows))
        return
    chosen = chosen or [name for name in default.split(",") if name in known] or known
    table = [[text(row.get(name), name) for name in chosen] for row in rows]
    if chosen and sys.stdout.isatty():
        numbers = [all(_is_number(row.get(name)) for row in rows) for name in chosen]
        lines, left_out = laid_out(chosen, table, numbers, _columns(), keep or bool(columns), borders)
        click.echo("\n".join(lines))
        if left_out:
            line = f"mom: no room for {', '.join(left_out)}: choose by -c, or see -o json"
            click.echo("\n".join(fold(line, _columns())), err=True)
    elif chosen:
        _plain_table([chosen, *table])


def show_one(record: Row, output: str, columns: str = "") -> None:
    """Print one record as a table of two columns, and each list of records in it as a table; or as one JSON object."""
    picked = {name: record[name] for name in choose(columns, list(record)) or record}
    if output == "json":
        echo_json(picked)
        return
    inner = {name: value for name, value in picked.items() if _is_table(value)}
    pairs = [
        (name, "none" if columns and value == [] else text(value, name))
        for name, value in picked.items()
        if name not in inner
    ]
    borders = (not pairs or fits(["", ""], pairs, _columns())) and all(map(_fits, inner.values()))  # all have, or none
    if pairs and sys.stdout.isatty():
        lines = bordered(["", ""], pairs, [False, False]) if borders else listed(pairs, _columns())
        click.echo("\n".join(lines))
    elif pairs:
        _plain_table(pairs)
    for name, rows in inner.items():
        if pairs or len(inner) > 1:
            click.echo(f"{chr(10) * bool(pairs or name != next(iter(inner)))}{name}")
        show(rows, output, "", keep=bool(columns), borders=borders)


def _fits(rows: Sequence[Row]) -> bool:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return fits(names, [[text(row.get(name), name) for name in names] for row in rows], _columns())


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _is_number(value: object) -> bool:
    """Or nothing, as in the row of a server that does not answer."""
    return value is None or value == "" or isinstance(value, int | float)


def _columns() -> int:
    return shutil.get_terminal_size().columns


def echo_json(value: object, indent: int | None = 2) -> None:
    click.echo(json.dumps(_text_keys(value), indent=indent, default=plain))


def _text_keys(value: object) -> object:
    """The same with text in the place of the bytes that a dict has as keys, for which JSON has no form either."""
    if isinstance(value, Mapping):
        return {plain(name) if isinstance(name, bytes) else name: _text_keys(each) for name, each in value.items()}
    return [_text_keys(each) for each in value] if isinstance(value, list) else value


def choose(columns: str, known: list[str]) -> list[str]:
    """The columns that the user asked for, if all of them are known."""
    chosen = [name.strip() for name in columns.split(",") if name.strip()]
    for name in chosen:
        if name not in known and FORMER_COLUMNS.get(name) in known:
            raise click.UsageError(f"there is no column {name!r} any more: write {FORMER_COLUMNS[name]!r}")
        if name not in known:
            raise click.UsageError(f"there is no column {name!r}; there are {', '.join(known)}")
    return chosen


def plain(value: object) -> object:
    """What JSON has no form for: bytes as text, sets and other collections as lists."""
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Iterable):
        return list(value)
    return str(value)


def text(value: object, name: str = "") -> str:
    """A cell of a table. It may have lines, but nothing else that a terminal obeys."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in _text(value, name))


def _text(value: object, name: str = "") -> str:
    if value is None or (value == 0 and name in TIMES):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{_text(name)}={_text(each, str(name))}" for name, each in value.items())
    if isinstance(value, list | tuple | set):
        return ", ".join(f"[{_text(each)}]" if isinstance(each, list | tuple) else _text(each) for each in value)
    if isinstance(value, int) and (name in TIMES or name.endswith("_ns")):
        return f"{value / NS:.3f} s" if name.endswith("_ns") else _time(value)
    return str(plain(value)) if isinstance(value, bytes) else str(value)


def _time(value: int) -> str:
    """Of so many ns, or ms, since 1970; a server has both, and they cannot be taken for each other."""
    return options.utc(value // 1_000_000 if value > 1 << 53 else value)


def _plain_table(lines: Sequence[Sequence[str]]) -> None:
    """Columns, but no borders and no colour: for pipes and files."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
