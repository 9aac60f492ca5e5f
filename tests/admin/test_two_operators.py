"""Two operators with one exported file: neither takes back unknowingly what the other one has changed."""

import os
import shutil

import pytest

from mombroker.admin.cli.renewing import Applied
from mombroker.admin.topology import plan as plans
from mombroker.admin.topology import under_way
from mombroker.admin.topology.made_from import refusal
from mombroker.core import revision
from mombroker.core.layouts import generate
from mombroker.net import config
from tests.admin.processes import Processes, write_topology
from tests.admin.test_topology_change import edit, number


@pytest.fixture(scope="module")
def bus(tmp_path_factory):
    made = Processes(write_topology(tmp_path_factory.mktemp("bus"), {"x": "ab"}, {"ann": "a"}))
    made.up()
    yield made
    made.down()


@pytest.fixture
def files(bus):
    """What two operators have begun with: one export."""
    made = [bus.file.parent / f"{name}.toml" for name in ("one", "two")]
    bus.mom("topology", "export", "--out", str(made[0]))
    shutil.copy(*made)
    yield made
    for each in made:
        each.unlink()


def with_agent(file, name):
    file.write_text(file.read_text() + f'[[agents]]\nname = "{name}"\nserver = "b"\nclass = "clerks:Clerk"\n')


def test_the_second_one_is_told_what_the_first_one_has_changed(bus, files):
    one, two = files
    was = number(bus)
    assert config.load(one).revision == was
    with_agent(one, "eve")
    bus.mom("topology", "apply", str(one), "--yes")
    with_agent(two, "sam")
    told = f"the file was made from revision {was} of the topology, and revision {was + 1} is in force (since then: "
    for words in (("plan",), ("apply", "--yes")):
        refused = bus.mom("topology", *words, str(two), code=1)
        assert "- agent eve on b" in refused.stdout, "what it would take back is shown"
        (line,) = refused.stderr.splitlines()
        assert f"cannot be applied now: {told}+ agent eve on b (clerks:Clerk)): write what you want into a new" in line
        assert line.endswith(f"or, if this one has all that or is to take it back, revision = {was + 1} into this one")
    assert number(bus) == was + 1 and config.load(two).revision == was
    found = bus.json("topology", "plan", str(two), code=1)
    assert found["refused"].startswith(told)
    assert plans.of_text(bus.file, "\ufeff" + two.read_text(), False)["refused"].startswith(told), (
        "the console tells it, too"
    )
    edit(two, f"revision = {was}", f"revision = {was + 1}")  # it is meant
    with_agent(two, "eve")
    bus.mom("topology", "apply", str(two), "--yes")
    assert bus.json("topology", "history")[0]["changes"] == ["+ agent sam on b (clerks:Clerk)"]


def test_one_goes_on_with_the_same_file(bus, files):
    one, two = files
    was = number(bus)
    with_agent(one, "tom")
    one.chmod(0o640)
    before = one.read_text()
    assert f"{one} says revision = {was + 1} now" in bus.mom("topology", "apply", str(one), "--yes").stderr
    assert one.read_text() == before.replace(f"revision = {was}\n", f"revision = {was + 1}\n")
    assert one.stat().st_mode & 0o777 == 0o640
    assert bus.mom("topology", "apply", str(one), "--yes").stdout.endswith("nothing is to be changed\n")
    with_agent(one, "kim")
    bus.mom("topology", "apply", str(one), "--yes")
    assert number(bus) == config.load(one).revision == was + 2
    # What is in force is refused of nobody, and who applies it has seen it.
    two.write_text(before)
    with_agent(two, "kim")
    assert bus.mom("topology", "plan", str(two)).stdout.endswith("nothing is to be changed\n")
    assert config.load(two).revision == was, "a plan changes nothing"
    bus.mom("topology", "apply", str(two), "--yes")
    assert config.load(two).revision == was + 2


def test_a_file_that_does_not_say_is_compared_with_nothing(bus, files):
    one, two = files
    was = number(bus)
    edit(two, f"revision = {was}\n", "")
    with_agent(one, "pat")
    bus.mom("topology", "apply", str(one), "--yes")
    with_agent(two, "joe")
    before = two.read_text()
    done = bus.mom("topology", "apply", str(two), "--yes")
    assert "- agent pat on b" in done.stdout and not done.stderr
    assert number(bus) == was + 2 and two.read_text() == before


def test_a_file_of_a_revision_that_is_not_there_yet(bus, files):
    one, _ = files
    was = number(bus)
    edit(one, f"revision = {was}\n", f"revision = {(1 << 63) - 1}\n")
    assert bus.mom("topology", "plan", str(one)).stdout.endswith("nothing is to be changed\n")
    with_agent(one, "max")
    told = bus.mom("topology", "apply", str(one), "--yes", code=1).stderr
    assert f"revision 9223372036854775807 of the topology, and revision {was} is in force: it is of another bus" in told
    assert f"or write revision = {was} in this one if it is meant" in told and number(bus) == was


def test_servers_start_with_a_file_of_any_revision_and_other_commands_take_it(bus, files):
    one, _ = files
    edit(one, f"revision = {number(bus)}\n", "revision = 77\n")
    text = bus.file.read_text()
    try:
        bus.file.write_text(one.read_text())
        bus.mom("server", "restart", "b")
        assert bus.settle()["clean"] and bus.all_up()
        bus.mom("topology", "validate")
        assert bus.json("topology", "show")["revision"] == 77
    finally:
        bus.file.write_text(text)
    assert f"revision = {number(bus)}\n" in bus.mom("topology", "export").stdout


@pytest.fixture
def change(monkeypatch):
    """Makes servers say, so many times, that a change to a revision is under way, and that b has not switched yet."""

    def pretend(to, times):
        said, ask = [to] * times, under_way.statuses

        def statuses(*given):
            rows = ask(*given)
            if said:
                bus = {"change": said.pop(), "phase": "frozen", "inside": ["a", "b"], "waits_for": ["b"]}
                rows[0] |= {"bus": bus, "phase": "switched", "change": bus["change"]}
            return rows

        monkeypatch.setattr(under_way, "statuses", statuses)

    return pretend


def test_a_change_that_is_under_way_is_told_and_waited_for(bus, files, change):
    """One of both has switched already, so the topology that was seen is the one that is wanted."""
    was, file = number(bus), str(files[0])
    change(was, 3)
    told = f"revision {was}: this change is under way, `mom topology status` tells how far it is\nb has not switched\n"
    assert bus.mom("topology", "plan", file).stdout == told
    assert bus.json("topology", "plan", file)["under_way"] == was
    assert bus.mom("topology", "apply", file, "--yes", "--no-wait").stdout == told
    change(was, 4)
    assert bus.mom("topology", "apply", file, "--yes").stdout == f"{told}revision {was} is in force\n"
    change(was, 1)
    assert bus.json("topology", "apply", file, "--no-wait") == {"revision": was, "changes": [], "over": False}
    change(was, 2)
    assert bus.json("topology", "apply", file) == {"revision": was, "changes": [], "over": True}
    assert bus.json("topology", "plan", file)["under_way"] == 0
    waits = ["c does not answer; start it"]
    row = {"server": "b", "phase": under_way.UNKNOWN, "waits_for": waits, "bus": {"waits_for": ["b"]}}
    assert list(under_way.waits([row])) == waits
    # Somebody else's change, to another topology.
    change(was + 1, 2)
    for words in (("plan", file), ("apply", file, "--yes")):
        told = bus.mom("topology", *words, code=1).stderr
        assert f"this cannot be applied now: a change to revision {was + 1} of the topology is under way" in told


def test_what_a_change_has_begun_to_bring_is_waited_for_where_nobody_has_switched(bus, files, monkeypatch):
    was, (file, _) = number(bus), files
    edit(file, 'ordering = "matrix"', 'ordering = "vector"')
    digest, ask, asked = revision.digest_of(revision.text_of(config.load(file))), under_way.statuses, []

    def statuses(*given):
        asked.append(given)
        rows = ask(*given)
        begun = {"change": was + 1, "phase": "frozen", "digest": digest}
        if len(asked) % 3 == 1:  # the registry does not answer
            rows[1] |= begun | {"waits_for": ["the mark of a"]}
            rows[0] |= {"phase": under_way.UNKNOWN, "waits_for": ["a does not answer"]}
        elif len(asked) % 3 == 2:  # to be waited for
            rows[0]["bus"] = begun | {"inside": ["a", "b"], "waits_for": ["b"]}
        else:
            rows = [row | {"revision": was + 1} for row in rows]
        return rows

    monkeypatch.setattr(under_way, "statuses", statuses)
    told = bus.mom("topology", "plan", str(file)).stdout.splitlines()
    assert told[0].startswith(f"revision {was + 1}: this change is under way")
    assert "  ~ domain x: matrix -> vector" in told and "b waits for the mark of a" in told
    done = bus.mom("topology", "apply", str(file), "--yes")
    assert done.stdout.endswith(f"revision {was + 1} is in force\n") and config.load(file).revision == was + 1
    # What has not begun may still be refused, so that nobody waits for it.
    asked_by = {"change": 9, "phase": "ready", "digest": digest}
    assert under_way.begun([{**asked_by, "bus": asked_by}], digest) == 0
    assert under_way.begun([{**asked_by, "bus": asked_by | {"phase": "frozen"}}], "other") == 0
    assert under_way.begun([{"change": 9, "phase": "frozen", "bus": {}}], digest) == 0, "of an older version"


def test_a_file_that_lies_elsewhere_than_the_servers_is_applied_and_its_end_seen(bus, files, tmp_path):
    was, file = number(bus), tmp_path / "bus.toml"
    text = files[0].read_text()
    assert 'data = "a"' in text, "which is beside the other file"
    for at, order in ((was, "ks"), (was + 1, "matrix")):
        edited = text.replace('ordering = "matrix"', f'ordering = "{order}"')
        file.write_text(edited.replace(f"revision = {was}\n", f"revision = {at}\n"))
        told = bus.mom("topology", "apply", str(file), "--now", str(bus.file), "--yes").stdout
        assert told.endswith(f"revision {at + 1} is in force\n") and config.load(file).revision == at + 1


def test_the_stores_do_not_know_the_key():
    bare, marked = generate("bus", 4), generate("bus", 4)
    marked.revision = 5
    assert bare == marked and revision.text_of(bare) == revision.text_of(marked)
    assert config.loads(config.dumps(marked), config.Path("/")).revision == 5
    assert "revision" not in config.dumps(bare)


def test_of_many_changes_the_first_are_told():
    file = generate("bus", 4)
    file.revision = 3
    past = [{"revision": at, "changes": [f"+ agent a{at}", f"+ agent b{at}"]} for at in (9, 8, 7, 6, 5, 4, 3, 2)]
    told = refusal(file, 9, past)
    assert "(since then: + agent a4; + agent b4; + agent a5; + agent b5; + agent a6; + agent b6; and 6 more)" in told
    assert "since" not in refusal(file, 9, [])
    assert not refusal(file, 3, past)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# mine\r\nrevision = 3 # of ours +\r\n[bus]\r\n", "# mine\r\nrevision = 10 # of ours +\r\n[bus]\r\n"),
        ("\ufeffrevision=+1_0\n", None),
        ("\ufeff  'revision'\t=  0x3\n", "\ufeff  'revision'\t=  10\n"),
        ('a = """\nrevision = 1\n"""\n"revision" = 2', 'a = """\nrevision = 1\n"""\n"revision" = 10'),
        ("[bus]\nrevision = 3\n", None),
        ("revision = true\n", None),
        ("revision = [\n", None),
        ("", None),
    ],
)
def test_nothing_else_in_a_file_is_changed(tmp_path, text, expected, capsys):
    file = tmp_path / "bus.toml"
    file.write_bytes(text.encode())
    Applied(file).renew(10)
    assert file.read_bytes().decode() == (text if expected is None else expected)
    assert [each.name for each in tmp_path.iterdir()] == ["bus.toml"]
    told = capsys.readouterr().err
    assert ("says revision = 10 now" in told) == (expected is not None)


def test_what_is_saved_in_its_place_meanwhile_is_not_renewed(tmp_path, capsys):
    """An editor may have had it open since before: it would be taken for one that has what was applied."""
    file = tmp_path / "bus.toml"
    file.write_text("revision = 3\n")
    applied = Applied(file)
    applied.renew(4)
    applied.renew(5)  # of two steps
    assert file.read_text() == "revision = 5\n"
    file.write_text("revision = 3\n# of before\n")
    applied.renew(6)
    assert file.read_text() == "revision = 3\n# of before\n"
    told = f"mom: {file} has been changed meanwhile: write revision = 6 into it if it has all that was applied\n"
    assert capsys.readouterr().err.endswith(told)


def test_a_file_stays_one_of_its_group_where_its_owner_cannot_be_kept(tmp_path, monkeypatch):
    """Or the others of the group could not write it any more."""
    file, asked, group = tmp_path / "bus.toml", [], os.getgid()
    file.write_text("revision = 3\n")

    def chown(_, owner, to):
        asked.append((owner, to))
        if owner != -1:
            raise PermissionError

    monkeypatch.setattr(os, "chown", chown)
    Applied(file).renew(4)
    assert (-1, group) in asked and file.read_text() == "revision = 4\n"


@pytest.mark.parametrize("how", ["link", "pipe", "refused", "escaped"])
def test_a_file_that_is_not_to_be_written_is_told(tmp_path, how, capsys, monkeypatch):
    file = real = tmp_path / "bus.toml"
    real.write_text('"revisio\\u006e" = 3\n' if how == "escaped" else "revision = 3\n")
    if how == "link":
        file = tmp_path / "link.toml"
        file.symlink_to(real)
    elif how == "pipe":
        real.unlink()
        os.mkfifo(file)
    elif how == "refused":
        monkeypatch.setattr(os, "access", lambda *_: False)
    Applied(file).renew(4)
    told = capsys.readouterr().err
    if how == "link":
        assert file.is_symlink() and real.read_text() == "revision = 4\n"
    elif how == "pipe":
        assert not told
    else:
        assert "3" in real.read_text()
        assert told == f"mom: {file} cannot be written: write revision = 4 into it before other changes\n"
