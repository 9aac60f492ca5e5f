"""TOML as text: on which line each key is, and tables written so that `tomllib` reads them back."""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

Key = tuple[str | int, ...]  # of nested tables; a number counts the tables of an array

DEEPEST = 8  # parts of a key that have a line: no key of a topology file has more

# A statement starts with a table header or a key; of its value only the end must be found.
PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
PATH = rf"{PART}(?:[ \t]*\.[ \t]*{PART})*"
STATEMENT = re.compile(
    rf"\s*+(?:\#[^\n]*+\s*+)*+(?:(?P<open>\[\[?)[ \t]*(?P<header>{PATH})[ \t]*\]\]?|(?P<key>{PATH})[ \t]*=)"
)
TOKEN = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|\'{3}.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\#[^\n]*|[\[{]|[\]}]|\n|[^"'\#\[\]{}\n]+''',
    re.DOTALL,
)


def key_lines(text: str) -> dict[Key, int]:
    """The line of each key and table header of a valid TOML text; keys inside a value have none, nor what is below
    DEEPEST."""
    lines: dict[Key, int] = {}
    table: Key = ()
    counts: dict[Key, int] = {}
    at, line, counted = 0, 1, 0
    while found := STATEMENT.match(text, at):
        group = "header" if found["header"] else "key"
        line += text.count("\n", counted, found.start(group))
        counted = found.start(group)
        path: Key = tuple(_unquoted(part) for part in re.findall(PART, found[group]))
        if group == "header":
            table = _in_last(path, counts)
            if found["open"] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            path = table
        else:
            path = (*table, *path)
        for end in range(1, min(len(path), DEEPEST) + 1):
            lines.setdefault(path[:end], line)
        at = _statement_end(text, found.end())
    return lines


def _in_last(path: Key, counts: Mapping[Key, int]) -> Key:
    """[agents.fields] means a table of the last [[agents]]."""
    for end in range(len(path) - 1, 0, -1):
        if path[:end] in counts:
            return (*path[:end], counts[path[:end]], *path[end:])
    return path


def _statement_end(text: str, at: int) -> int:
    depth = 0
    while token := TOKEN.match(text, at):
        at = token.end()
        depth += (token[0] in "[{") - (token[0] in "]}")
        if token[0] == "\n" and not depth:
            break
    return at


def _unquoted(part: str) -> str:
    if part[0] == '"':
        return str(tomllib.loads(f"key = {part}")["key"])
    return part.strip("'")


def number_of(text: str, name: str) -> int | None:
    """The whole number that a key outside of all tables has; None without one. Raises ValueError if that is no TOML."""
    found = tomllib.loads(text).get(name)
    return found if type(found) is int else None


def with_number(text: str, name: str, number: int) -> str:
    """The text with another number in the place of that; all else is as it was. Raises ValueError if it cannot be."""
    at = key_lines(text)[name,] - 1
    lines = text.split("\n")
    lines[at] = re.sub(rf"^(\s*[\"']?{re.escape(name)}[\"']?\s*=\s*)\+?\w+", rf"\g<1>{number}", lines[at])
    made = "\n".join(lines)
    if tomllib.loads(made) != {**tomllib.loads(text), name: number}:
        raise ValueError(f"{name} stands where it cannot be replaced")
    return made


def line_of(lines: Mapping[Key, int], key: Key) -> int:
    """Of the key, or of the nearest table around it; 0 if there is none."""
    return next((lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in lines), 0)


def write(out: list[str], header: str, table: Mapping[str, Any]) -> None:
    """Add the lines of a table, without the entries that are None."""
    out.extend(["", header] if out else [header])
    out.extend(f"{key(name)} = {_value(value)}" for name, value in table.items() if value is not None)


def key(name: str) -> str:
    """A name as part of a key."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key(name)} = {_value(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
