"""The index of invariants, from the docstrings of the classes that keep them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOMS = {
    "core": "mombroker/core", "ordering": "mombroker/ordering", "broker": "mombroker/broker", "agents": "agents",
    "store": "mombroker/store", "stomp": "mombroker/stomp", "amqp": "mombroker/amqp",
    "gateway": "mombroker/gateway", "net": "mombroker/net",
    "jms": "mombroker/jms",
}  # fmt: skip
HEAD = """# Invariants

Made from the docstrings of the classes by `python -m mombroker.admin.cli.reference`; do not edit.

What is numbered in the docstring of a class is true whenever none of its methods runs. A class with *check* has a
method `check` that asserts it, and the simulator calls that after every turn. The rules that hold for all parts
together are in [architecture.md](architecture.md#what-holds-everywhere).
"""
FIRST = re.compile(r"(?m)^1\. ")
ITEM = re.compile(r"(?m)^(?=\d+\. )|(?<=\. )(?=\d+\. [A-Z])")


def document(root: Path) -> str:
    parts = [HEAD]
    for room, folder in ROOMS.items():
        found = [each for path in sorted((root / folder).rglob("*.py")) for each in _classes(path, root / folder)]
        if found:
            parts += [f"## {room}", *found]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _classes(path: Path, room: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and (found := FIRST.search(text := ast.get_docstring(node) or "")):
            checked = any(isinstance(each, ast.FunctionDef) and each.name == "check" for each in node.body)
            numbered = text[found.start() :].partition("\n\n")[0]
            items = [" ".join(item.split()) for item in ITEM.split(numbered) if item.strip()]
            name = f"`{path.relative_to(room.parent)}` `{node.name}`"
            yield "\n".join([f"**{name}**{', *check*' if checked else ''}", "", *items])
