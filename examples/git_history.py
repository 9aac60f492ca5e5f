"""A project's history as a bus of agents: an author publishes a commit once it has seen all parents, to all authors.

A commit's parents are its causes, and causal order brings them first to everybody; each author checks that it does.
Only the shape of a history is used: which commit has which parents and is whose, and when it was made.
"""

import json
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mombroker.agents import Agent, notification, reacts
from mombroker.core.errors import MomError

SAMPLE = Path(__file__).parent / "data" / "git_history.jsonl"


class Line(NamedTuple):
    """One commit of a history file. Parents come before their children; ids count from 0."""

    id: int
    parents: list[int]
    author: int
    t: int  # seconds since the first commit


def read(file: Path | str) -> list[Line]:
    """Raises MomError for a file that holds something else."""
    try:
        with open(file) as lines:
            history = [Line(**json.loads(line)) for line in lines]
    except OSError as error:
        raise MomError(f"cannot read {file}: {error.strerror}") from None
    except (TypeError, ValueError) as error:
        raise MomError(f"{file} is no history: {error}") from None
    if any(line.id != at or not all(0 <= each < at for each in line.parents) for at, line in enumerate(history)):
        raise MomError(f"{file} is no history: ids must count from 0, and parents come first")
    return history


def write(file: Path | str, history: Iterable[Line]) -> None:
    with open(file, "w") as lines:
        lines.writelines(json.dumps(line._asdict(), separators=(",", ":")) + "\n" for line in history)


def of_repository(path: Path | str) -> list[Line]:
    """The history of HEAD in a git repository. Raises MomError where there is none."""
    command = ["git", "-C", str(path), "log", "--reverse", "--topo-order", "--format=%H%x09%P%x09%ae%x09%ct"]
    try:
        run = subprocess.run(command, capture_output=True, check=True)
    except FileNotFoundError:
        raise MomError("git is not installed; install it, or leave out the repository") from None
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().splitlines()
        raise MomError(f"git cannot read {path}: {reason[-1] if reason else 'it does not say why'}") from None
    return parse(run.stdout.decode(errors="replace").splitlines())


def parse(lines: Iterable[str]) -> list[Line]:
    """The history in lines of hash, parents' hashes, author and seconds, divided by tabs."""
    ids: dict[str, int] = {}
    authors: dict[str, int] = {}
    history: list[Line] = []
    start = 0
    for line in lines:
        name, parents, author, seconds = line.split("\t")
        # What a shallow clone has cut off is no parent.
        known = [ids[each] for each in dict.fromkeys(parents.split()) if each in ids]
        start = start or int(seconds)
        ids[name] = len(history)
        history.append(Line(len(history), known, authors.setdefault(author, len(authors)), int(seconds) - start))
    return history


@cache
def own(file: str, author: int) -> dict[int, list[Line]]:
    """The commits of one author under each of their parents; those without parents under -1."""
    found: dict[int, list[Line]] = {}
    for line in _whole(file):
        if line.author == author:
            for parent in line.parents or [-1]:
                found.setdefault(parent, []).append(line)
    return found


@cache
def _whole(file: str) -> list[Line]:
    return read(file)


@notification
class Commit:
    id: int
    parents: list[int]


class Author(Agent):
    """One of author0, author1, ..., `authors` in all. Which commits it will make it reads in the file `history`.

    `seen` commits were seen: all below `low`, and those whose bits are set in `beyond`, the lowest bit being `low`.
    """

    history: str
    author: int
    authors: int
    seen: int = 0
    low: int = 0
    beyond: bytes = b""
    published: int = 0
    violations: int = 0  # commits that came before one of their parents
    duplicates: int = 0

    def on_create(self) -> None:
        self._publish(own(self.history, self.author).get(-1, []))

    @reacts
    def see(self, commit: Commit) -> None:
        if self._has(commit.id):
            self.duplicates += 1
            return
        if not all(map(self._has, commit.parents)):
            self.violations += 1
        self._add(commit.id)
        children = own(self.history, self.author).get(commit.id, [])
        self._publish(child for child in children if all(map(self._has, child.parents)))

    def _publish(self, commits: Iterable[Line]) -> None:
        for commit in commits:
            self.published += 1
            self.send([f"author{number}" for number in range(self.authors)], Commit(commit.id, commit.parents))

    def _has(self, id: int) -> bool:
        byte, bit = divmod(id - self.low, 8)
        return byte < 0 or (byte < len(self.beyond) and bool(self.beyond[byte] >> bit & 1))

    def _add(self, id: int) -> None:
        self.seen += 1
        byte, bit = divmod(id - self.low, 8)
        bits = bytearray(self.beyond.ljust(byte + 1, b"\0"))
        bits[byte] |= 1 << bit
        full = len(bits) - len(bits.lstrip(b"\xff"))
        self.low += 8 * full
        self.beyond = bytes(bits[full:])
