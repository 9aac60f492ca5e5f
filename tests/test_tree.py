"""The tree itself: layers, packages, names, and what the built archives hold."""

import ast
import configparser
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from mombroker.core.transaction import Transaction
from mombroker.ordering import registry

ROOT = Path(__file__).resolve().parent.parent
SHORT = ("agents", "admin")  # lie at the top, are imported as mombroker.agents and mombroker.admin
SKIP = {".git", "build", "dist", "var", "__pycache__"}  # .git is a file in a linked work tree

# Low to high: a module may import its own level and those below it.
LEVELS = [
    {"core", "ordering"},
    {"agents", "broker"},
    {"store", "stomp", "amqp", "gateway"},
    {"net", "sim"},
    {"lab", "jms", "kit"},
    {"admin"},
]
APART = [LEVELS[1], LEVELS[2], LEVELS[3], LEVELS[4]]  # rooms of one level never import each other
SANS_IO = {"core", "ordering", "stomp", "amqp"}
IMPURE = {"time", "random", "socket", "threading", "asyncio", "sqlite3", "logging"}
TWISTED = ("mombroker.net", "mombroker.gateway")


def files(*suffixes: str) -> Iterator[Path]:
    """The project's own files, each once (the links in mombroker/ are not followed)."""
    stack = [ROOT]
    while stack:
        for path in sorted(stack.pop().iterdir()):
            if path.name in SKIP or path.name.endswith(".egg-info") or path.is_symlink():
                continue
            if path.is_dir() and (not path.name.startswith(".") or path.name == ".ci"):
                stack.append(path)
            elif path.is_file() and path.suffix in suffixes:
                yield path


def module_of(path: Path) -> str:
    """The dotted name under which a source file is imported."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(["mombroker", *parts] if parts[0] in SHORT else parts)


class Said(NamedTuple):
    imports: list[ast.Import | ast.ImportFrom]
    names: list[str]  # of classes and functions


@cache
def said(path: Path) -> Said:
    """What a file imports and defines, wherever in it. Both are statements, so no expression is looked at."""
    found = Said([], [])
    stack: list[ast.AST] = [ast.parse(path.read_text())]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.names.append(node.name)
        for inner in ("body", "orelse", "finalbody", "handlers", "cases"):
            stack += getattr(node, inner, ())
    return found


def imports_of(path: Path) -> set[str]:
    """The modules that a file imports."""
    found = set()
    for node in said(path).imports:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            found.add(str(node.module))
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


SOURCES = {module_of(path): imports_of(path) for path in files(".py")}
OWN = {module: names for module, names in SOURCES.items() if module.startswith("mombroker")}


def needs(path: Path) -> set[str]:
    """The modules of ours that a file imports; of `from package import module` the module alone."""
    found = set()
    for node in said(path).imports:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        else:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in OWN else str(node.module) for name in names)
    return (found & OWN.keys()) - {module_of(path)}


ARROWS = {module_of(path): needs(path) for path in files(".py") if module_of(path) in OWN}


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The largest sets of modules that all need each other, directly or not."""
    reached: dict[str, set[str]] = {}
    for module in graph:
        found, stack = set(), [module]
        while stack:
            new = graph[stack.pop()] - found
            found |= new
            stack += new
        reached[module] = found
    sets = {module: frozenset(each for each in found if module in reached[each]) for module, found in reached.items()}
    return sorted({frozenset(each) for each in sets.values() if each}, key=sorted)


# For the tests of authors: they are imported beside what authors write against, and stand above the simulator.
KIT = ("mombroker.agents.testing", "mombroker.agents.pytest_plugin")


def layer(module: str) -> str | None:
    if module in KIT:
        return "kit"
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "mombroker" else None


def level(name: str) -> int:
    return next(at for at, names in enumerate(LEVELS) if name in names)


def layers_of(names: set[str]) -> set[str]:
    """The layers that imported names belong to (`from mombroker import __version__` belongs to none)."""
    found = {layer(name) for name in names}
    return {name for name in found if name is not None and (ROOT / "mombroker" / name).is_dir()}


def test_every_package_has_a_layer():
    packages = {path.name for path in (ROOT / "mombroker").iterdir() if path.is_dir() and path.name not in SKIP}
    assert packages <= set.union(*LEVELS)


@pytest.mark.parametrize("module", sorted(OWN))
def test_a_module_imports_no_higher_layer(module):
    mine = layer(module)
    if mine is None:  # the package `mombroker` itself is below all
        assert layers_of(OWN[module]) == set()
        return
    assert {name for name in layers_of(OWN[module]) if level(name) > level(mine)} == set()
    siblings = set().union(*(rooms for rooms in APART if mine in rooms)) - {mine}
    assert siblings & layers_of(OWN[module]) == set()


# Rooms whose modules still import each other in circles. One that has mended that is taken out.
# That of jms is of its subject: a context makes consumers and producers, and each of them is of its context.
CIRCULAR = ["mombroker.jms"]


def test_modules_import_each_other_in_no_circles():
    """Imports for the type checker count: who reads a module reads what it names."""
    new = [each for each in circles(ARROWS) if not any(all(in_(room, name) for name in each) for room in CIRCULAR)]
    assert new == []


def in_(room: str, module: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def of_room(users: str, used: str) -> dict[str, set[str]]:
    """What the modules of one room import of another."""
    found = {name: {each for each in ARROWS[name] if layer(each) == used} for name in OWN if layer(name) == users}
    return {name: names for name, names in found.items() if names}


# Parts ask a `Transaction` or `Natives`, not the server that owns them. These stand above it, or look at all of it.
KNOW_THE_SERVER = {
    "mombroker.broker.attach", "mombroker.core.repair", "mombroker.core.server", "mombroker.core.status",
}  # fmt: skip


def test_parts_of_a_server_do_not_name_it():
    named = {
        module_of(path)
        for path in files(".py")
        if layer(module_of(path)) in ("core", "broker", "agents") and re.search(r"\bAgentServer\b", path.read_text())
    }
    assert named == KNOW_THE_SERVER


def test_a_part_of_a_server_sees_few_names_of_it():
    """Whoever adds one gives another up."""
    assert len([name for name in dir(Transaction) if not name.startswith("_")]) <= 15


def test_ordering_and_core_know_little_of_each_other():
    """A back end works without an agent server, and the server knows none by name."""
    up, down = of_room("ordering", "core"), of_room("core", "ordering")
    assert set().union(*up.values()) == {"mombroker.core.errors", "mombroker.core.causality"}
    assert set().union(*down.values()) == {"mombroker.ordering", "mombroker.ordering.base"}


def test_no_back_end_imports_another():
    backends = {f"mombroker.ordering.{name}" for name in registry.BUILT_IN}
    assert {name for name in backends if ARROWS[name] & backends} == set()


def test_the_laboratory_needs_only_the_virtual_time_of_the_simulator():
    users = {name for name, names in of_room("lab", "sim").items() if names != {"mombroker.sim.world"}}
    assert users == {"mombroker.lab.recording"}  # which runs a whole bus, to draw it


COMPILER = {"mombroker.core.compiling": {"mypy_extensions"}}  # which nobody imports: it is for mypyc alone


@pytest.mark.parametrize("module", sorted(name for name in OWN if layer(name) in SANS_IO))
def test_a_pure_room_needs_only_the_pure_part_of_the_standard_library(module):
    tops = {name.split(".")[0] for name in OWN[module]} - COMPILER.get(module, set())
    assert tops <= sys.stdlib_module_names | {"mombroker"}
    assert tops & IMPURE == set()


def test_twisted_stays_at_the_border():
    users = {name for name, imported in OWN.items() if any(each.split(".")[0] == "twisted" for each in imported)}
    assert {name for name in users if not name.startswith(TWISTED)} == set()


def test_nobody_imports_the_short_names():
    wrong = {name for name, imported in SOURCES.items() if any(each.split(".")[0] in SHORT for each in imported)}
    assert wrong == set()


@pytest.mark.parametrize("short", SHORT)
def test_a_short_name_refuses_to_be_imported(short):
    run = subprocess.run([sys.executable, "-c", f"import {short}"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1
    assert f"ImportError: this folder is imported as mombroker.{short}" in run.stderr


def test_the_listed_packages_equal_the_tree():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = config["options"]["packages"].split()
    assert listed == sorted(listed)
    found = {module_of(path.parent / "__init__.py") for path in files(".py") if path.parent != ROOT}
    assert set(listed) == {name for name in found if name.split(".")[0] == "mombroker"}
    missing = [name for name in listed if not (ROOT / name.replace(".", "/") / "__init__.py").exists()]
    assert missing == []


DEAD_NAMES = re.compile(r"util|helper|manager", re.IGNORECASE)


def test_no_module_class_or_function_has_a_name_that_says_nothing():
    wrong = []
    for path in files(".py"):
        if DEAD_NAMES.search(path.stem):
            wrong.append(str(path))
        wrong += [f"{path}: {name}" for name in said(path).names if DEAD_NAMES.search(name)]
    assert wrong == []


MOST_LINES = 600
LONGER = {"mombroker/core/channel.py"}  # one class that each message passes: any cut would be one more call for each


def test_no_file_is_too_long_to_be_read_at_one_go():
    counts = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files(".py")}
    assert {name for name, count in counts.items() if count > MOST_LINES} == LONGER


# Put together here so that this file does not find itself.
DEAD_TEXT = re.compile("|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", r"(?<![\w.])/(?:" + r"tmp|work|root)/"]))


def test_no_text_holds_open_ends_or_paths_of_one_machine():
    texts = [*files(".py", ".md", ".toml", ".cfg", ".service", ""), *(ROOT / "etc").rglob("*.bash")]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if DEAD_TEXT.search(line)
    ]
    assert wrong == []


BUILD = "import sys; from setuptools import build_meta as b; getattr(b, 'build_' + sys.argv[1])(sys.argv[2])"


def build(kind: str, source: Path, target: Path) -> Path:
    command = [sys.executable, "-c", BUILD, kind, str(target)]
    run = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    (built,) = target.iterdir()
    return built


def test_the_archives_hold_the_packages_where_they_are_imported_from(tmp_path):
    """A wheel with a literal agents/ at its top would overwrite other people's package of that name."""
    tree, sdist, wheel = (tmp_path / name for name in ("tree", "sdist", "wheel"))
    sdist.mkdir(), wheel.mkdir()
    ignored = shutil.ignore_patterns(".*", *SKIP, "*.egg-info", "tests")
    shutil.copytree(ROOT, tree, symlinks=True, ignore=ignored)
    shutil.unpack_archive(build("sdist", tree, sdist), tmp_path)
    (unpacked,) = tmp_path.glob("mombroker-*")
    beside = {path for part in ("docs", "etc", "examples") for path in (ROOT / part).rglob("*") if path.is_file()}
    beside |= {ROOT / name for name in ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "setup.cfg")}
    texts = {path.relative_to(ROOT) for path in beside if not SKIP & set(path.parts) and path.suffix != ".pyc"}
    assert {path for path in texts if not (unpacked / path).is_file()} == set()
    with zipfile.ZipFile(build("wheel", unpacked, wheel)) as archive:
        names = set(archive.namelist())

    console = ROOT / "mombroker" / "gateway" / "web" / "console"
    assert {path.relative_to(ROOT).as_posix() for path in console.iterdir()} <= names
    held = {Path(name).parent.as_posix().replace("/", ".") for name in names if name.endswith(".py")}
    assert held == {name for name in held if name.split(".")[0] == "mombroker"}
    assert {"mombroker.agents", "mombroker.admin.cli", "mombroker.core"} <= held
    sources = {path.relative_to(ROOT).as_posix() for path in files(".py") if module_of(path) in OWN}
    installed = {name for name in names if name.endswith(".py")}
    assert installed == {f"mombroker/{name}" if name.split("/")[0] in SHORT else name for name in sources}


ROOMS = ("", "mombroker", "mombroker/broker", "docs")  # where a path begins that a page names


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/index.md"])
def test_every_path_that_a_page_for_newcomers_names_is_there(page):
    text = (ROOT / page).read_text()
    written = set(re.findall(r"`((?:\.?\w[\w.-]*/)+[\w.*-]*)`", text))
    linked = {name for name in re.findall(r"\]\(([^)#]+)", text) if "://" not in name}
    assert linked or written
    missing = {path for path in written if not any([*(ROOT / room).glob(path.rstrip("/"))] for room in ROOMS)}
    missing |= {path for path in linked if not ((ROOT / page).parent / path).exists()}
    assert missing == set()


def test_every_document_is_listed_by_reader_and_the_list_is_linked_from_the_first_page():
    listed = (ROOT / "docs" / "index.md").read_text()
    assert [
        page.name for page in (ROOT / "docs").glob("*.md") if page.name != "index.md" and f"({page.name})" not in listed
    ] == []
    assert "(docs/index.md)" in (ROOT / "README.md").read_text()


def test_exceptions_of_all_kinds_are_caught_where_the_page_on_the_architecture_says():
    text = (ROOT / "docs" / "architecture.md").read_text()
    for path in files(".py"):
        room = path.relative_to(ROOT).parts
        name = "/".join(room[room[0] == "mombroker" :])
        if room[0] not in ("mombroker", "agents") or "except Exception" not in path.read_text():
            continue
        if room[1] not in ("sim", "ordering"):
            assert f"`{name}`" in text.rpartition("`Exception` is caught")[2], path
