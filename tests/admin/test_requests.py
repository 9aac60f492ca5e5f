"""What the commands ask servers for is in the table of verbs, with these arguments."""

import ast
from collections.abc import Iterator
from pathlib import Path

from mombroker.admin.cli import tables_reference
from tests.test_tree import ROOT, files

ASK = {"ask", "_ask", "request", "answers", "confirmed", "listed", "post_own"}
ASKING = [path for path in files(".py") if path.relative_to(ROOT).parts[0] in ("admin", "mombroker")]


def asked(path: Path) -> Iterator[tuple[str, set[str]]]:
    """The verbs that a file names in a call, each with the arguments that it gives by name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            words = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if name in ASK and words and words[-1].isidentifier():
                connection = {"tls"} if len(node.args) == 4 else set()  # `ask` of a server that is not in our topology
                yield words[-1], {each.arg for each in node.keywords if each.arg} - connection


def test_every_request_of_the_commands_is_a_verb_with_such_arguments():
    known = {verb.name: verb for verb in tables_reference.verbs()}
    found = {(path.name, verb, *sorted(args)) for path in ASKING for verb, args in asked(path)}
    wrong = [each for each in found if each[1] not in known or not {*each[2:]} <= {*known[each[1]].arguments}]
    assert wrong == [] and len({each[1] for each in found}) > 25


def test_every_verb_is_asked_for_by_somebody():
    """What no command reaches does not stay."""
    text = "".join(path.read_text() for path in ASKING if path.parts[-2] != "verbs" and path.name != "verbs.py")
    assert [verb.name for verb in tables_reference.verbs() if f'"{verb.name}"' not in text] == []
