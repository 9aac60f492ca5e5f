"""Every author sees every commit once, after its parents; histories come from files and repositories."""

import json
import random
import subprocess

import pytest

from examples import git_history
from examples.git_history import SAMPLE, Author, Line
from mombroker.agents.agent import initial
from mombroker.core.errors import MomError
from mombroker.core.topology import AgentDecl
from mombroker.net import config
from tests.core.bus import Bus

HISTORY = [
    Line(0, [], 0, 0),
    Line(1, [0], 1, 5),
    Line(2, [0], 2, 6),
    Line(3, [1, 2], 0, 9),
    Line(4, [], 2, 3),
    Line(5, [3, 4], 1, 12),
    Line(6, [5], 1, 13),
]


def bus_of(history, tmp_path):
    file = tmp_path / "history.jsonl"
    git_history.write(file, history)
    topology = config.load("examples/git_history.toml")
    authors = 1 + max(line.author for line in history)
    servers = list(topology.servers)
    topology.agents = [
        AgentDecl(
            f"author{number}", servers[number % len(servers)], "examples.git_history:Author",
            {"history": str(file), "author": number, "authors": authors},
        )
        for number in range(authors)
    ]  # fmt: skip
    return Bus(topology)


def all_saw(bus, history):
    for agent in bus.topology.agents:
        fields = bus.fields(f"{agent.server}/{agent.name}")
        assert (fields["seen"], fields["violations"], fields["duplicates"]) == (len(history), 0, 0)
        assert fields["published"] == sum(line.author == fields["author"] for line in history)


def test_every_author_sees_every_commit_after_its_parents(tmp_path):
    bus = bus_of(HISTORY, tmp_path)
    bus.pump()
    all_saw(bus, HISTORY)


def test_so_it_is_for_the_sample_with_a_router_that_dies(tmp_path):
    history = git_history.read(SAMPLE)[:150]
    bus = bus_of(history, tmp_path)
    rng = random.Random(1)
    for step in range(400):
        name = rng.choice(list(bus.servers))
        server = bus.servers[name]
        server.turn(bus.now)
        if server.urgency:
            bus.release(name, bus.commit(name))
        if step == 200:
            bus.crash("paris")
            bus.boot("paris")
    bus.pump()
    all_saw(bus, history)


def alone(tmp_path):
    """An author outside of any server, with nothing to publish."""
    file = tmp_path / "history.jsonl"
    file.touch()
    return Author("a/author0", initial(Author, {"history": str(file), "author": 0, "authors": 1}), "a")


def test_an_author_tells_what_came_too_early_and_twice(tmp_path):
    author = alone(tmp_path)
    for id, parents in [(0, []), (2, [1]), (1, [0]), (1, [0]), (3, [1, 2]), (2, [1])]:
        author.see(git_history.Commit(id, parents))
    assert (author.seen, author.violations, author.duplicates) == (4, 1, 2)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_seen_is_known_exactly_and_takes_little_room(tmp_path, seed):
    rng = random.Random(seed)
    author, seen = alone(tmp_path), set()
    ids = sorted(range(400), key=lambda id: id + rng.randrange(1, 60))
    for id in ids:
        author._add(id)
        seen.add(id)
        assert [author._has(each) for each in range(410)] == [each in seen for each in range(410)]
        assert len(author.beyond) <= 60 // 8 + 2
    assert (author.low, author.beyond) == (400, b"")


def test_the_sample_is_the_shape_of_a_real_history():
    history = git_history.read(SAMPLE)
    assert (len(history), len({line.author for line in history})) == (2378, 96)
    assert sum(len(line.parents) > 1 for line in history) == 307


def test_a_repository_gives_its_shape(tmp_path):
    def git(*arguments, author="a", time=1000):
        env = {
            "GIT_AUTHOR_NAME": author, "GIT_AUTHOR_EMAIL": author, "GIT_COMMITTER_NAME": "c", "HOME": str(tmp_path),
            "GIT_COMMITTER_EMAIL": "c", "GIT_COMMITTER_DATE": f"@{time} +0000", "PATH": "/usr/bin:/bin:/usr/local/bin",
        }  # fmt: skip
        subprocess.run(["git", "-C", str(tmp_path), *arguments], env=env, check=True, capture_output=True)

    def commit(author, time):
        git("commit", "--allow-empty", "-m", "x", author=author, time=time)

    git("init", "-b", "main")
    commit("ann", 1000)
    git("checkout", "-b", "side")
    commit("bob", 1010)
    git("checkout", "main")
    commit("ann", 1020)
    git("merge", "--no-ff", "side", author="bob", time=1030)
    found = git_history.of_repository(tmp_path)
    assert [(line.id, line.author, line.t) for line in found if line.id in (0, 3)] == [(0, 0, 0), (3, 1, 30)]
    assert sorted(line.parents for line in found) in ([[], [0], [0], [1, 2]], [[], [0], [0], [2, 1]])


def test_what_is_cut_off_and_named_twice_is_left_out():
    lines = ["a\tcut\tx@y\t7", "b\ta a\tx@y\t9", "c\tb a\tz@y\t8"]
    assert git_history.parse(lines) == [Line(0, [], 0, 0), Line(1, [0], 0, 2), Line(2, [1, 0], 1, 1)]


@pytest.mark.parametrize("text", ["nonsense", '{"id":0}', '{"id":1,"parents":[],"author":0,"t":0}'])
def test_a_file_that_is_no_history_is_refused(tmp_path, text):
    file = tmp_path / "history.jsonl"
    file.write_text(text + "\n")
    with pytest.raises(MomError, match="is no history"):
        git_history.read(file)


def test_no_file_and_no_repository_are_refused(tmp_path):
    with pytest.raises(MomError, match="cannot read"):
        git_history.read(tmp_path / "none")
    with pytest.raises(MomError, match="git cannot read"):
        git_history.of_repository(tmp_path / "none")


def test_a_history_is_written_as_it_was_read(tmp_path):
    file = tmp_path / "history.jsonl"
    git_history.write(file, HISTORY)
    assert git_history.read(file) == HISTORY
    assert json.loads(file.read_text().splitlines()[1]) == {"id": 1, "parents": [0], "author": 1, "t": 5}
