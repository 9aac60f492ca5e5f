"""The command line as a whole: every command is described, errors are one line, and little is loaded for help."""

import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mombroker.admin.cli import completion, main, options, reference, topology_reference
from mombroker.admin.cli.group import DefaultGroup
from mombroker.admin.cli.output import choose
from mombroker.core.errors import MomError, StoreFailed
from mombroker.core.limits import Limits
from mombroker.net import config
from mombroker.net.exit_codes import ExitCode

EVERY = dict(main.commands())
TEXTS = [
    *(path for part in ("mombroker", "admin", "agents") for path in (reference.ROOT / part).rglob("*.py")),
    *(reference.ROOT / "docs").rglob("*.md"), reference.ROOT / "README.md",
]  # fmt: skip
LEAVES = {name: command for name, command in EVERY.items() if not isinstance(command, click.Group)}


def described(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "")


@pytest.mark.parametrize("name", main.COMMANDS)
def test_the_list_of_commands_says_what_the_commands_say_themselves(name):
    command = EVERY[f"mom {name}"]
    assert command.name == name
    assert described(command).partition("\n\n")[0] == main.COMMANDS[name][2]


@pytest.mark.parametrize("name", [name for name in EVERY if name not in LEAVES and name != "mom"])
def test_the_help_of_a_group_names_the_commands_that_it_has_and_no_other(name):
    group = EVERY[name]
    told = described(group).partition("\n\n")[0].rstrip(".").rpartition(": ")[2].split(", ")
    assert sorted(told) == group.list_commands(click.Context(group))


WRITTEN = re.compile(r"(?:`|^ *(?:\$ )?)mom ([a-z]+)(?: ([a-z]+))?", re.M)  # as code of Markdown, or a line of it


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(reference.ROOT)))
def test_no_text_tells_of_a_command_that_there_is_not(path):
    for noun, verb in WRITTEN.findall(path.read_text()):
        assert f"mom {noun}" in EVERY, f"{path.name}: mom {noun} {verb}"
        if not isinstance(EVERY[f"mom {noun}"], click.Group) or isinstance(EVERY[f"mom {noun}"], DefaultGroup):
            continue
        if verb:
            assert f"mom {noun} {verb}" in EVERY, f"{path.name}: mom {noun} {verb}"


@pytest.mark.parametrize(
    "words, hint",
    [
        ("quue", "there is no command `mom quue`: did you mean queue?"),
        ("stauts", "there is no command `mom stauts`: did you mean status?"),
        ("recieve /queue/a", "there is no command `mom recieve`: did you mean receive?"),
        ("queue lst", "there is no command `mom queue lst`: did you mean list?"),
        ("purge a", "there is no command `mom purge`: there are mom queue purge and mom subscription purge"),
        ("dlq drop", "there is no command `mom dlq drop`: there are list and retry"),
        ("xyz", "there is no command `mom xyz`: see `mom --help`"),
        ("deadletter list", "there is no command `mom deadletter`: it is `mom agent deadletters` now"),
        ("deadletters list", "it is `mom agent deadletters` now"),
        ("queue browse orders --held", "there is no --held any more: write --unacked"),
        ("status --fiel x", "did you mean"),
        ("topology show --colums x", "did you mean"),
    ],
)
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(words, hint):
    result = CliRunner().invoke(main.cli, words.split(), prog_name="mom")
    assert result.exit_code == 2
    assert hint.lower() in result.stderr.lower().splitlines()[-1]


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_help_and_an_example(name):
    text = described(LEAVES[name])
    assert len(text.partition("\n\n")[0]) > 10
    assert "\b\nExample:\n  mom " in text
    example = text.partition("Example:\n")[2].splitlines()[0].split("#")[0]
    assert name in example, f"the first example of {name} shows another command"


@pytest.mark.parametrize("name", LEAVES)
def test_every_option_is_explained(name):
    for parameter in LEAVES[name].params:
        assert not isinstance(parameter, click.Option) or parameter.help, f"{name} {parameter.name}"


FILES = [name for name, each in LEAVES.items() if {"file", "named"} & {param.name for param in each.params}]
PATHS = ("file", "source")  # arguments that are the topology file, or may be it


@pytest.mark.parametrize("name", FILES)
def test_a_topology_file_is_taken_by_option_and_as_the_first_argument(name):
    command = LEAVES[name]
    assert any({"-f", "--file"} <= {*param.opts} for param in command.params)
    others = [each for each in command.params if isinstance(each, click.Argument) and each.name not in PATHS]
    words = ["7" for each in others for _ in range(1 + (each.nargs < 0)) if each.required or each.nargs < 0]
    for words_given in ([*words, "-f", "bus.toml"], ["bus.toml", *words]):
        if name == "mom demo":  # its argument is what it is to play
            continue
        with command.make_context(name, [*words_given], resilient_parsing=True) as ctx:
            named = ctx.params.get("file") or ctx.params.get("source")
            assert named == Path("bus.toml") or ctx.meta.get(options.GIVEN) == Path("bus.toml")
            flat = [word for each in others for word in several(ctx.params[each.name])]
            assert [str(word) for word in flat] == words and ctx.args == []


def several(value):
    return value if isinstance(value, tuple) else () if value is None else (value,)


def test_a_first_argument_that_is_written_as_a_destination_or_follows_an_option_file_is_no_topology_file():
    for words in (["/queue/a.toml"], ["queue:a.toml"], ["a.toml", "-f", "b.toml"], ["-f", "b.toml", "a.toml"]):
        with LEAVES["mom queue show"].make_context("show", [*words]) as ctx:
            expected = Path("b.toml") if "-f" in words else Path(options.DEFAULT_FILE)
            assert ctx.params["file"] == expected and ctx.params["queue"].endswith("a.toml")
    with LEAVES["mom topology route"].make_context("route", ["x.toml", "a", "b"]) as ctx:
        assert [str(ctx.params[name]) for name in ("file", "a", "b")] == ["x.toml", "a", "b"]
    result = CliRunner().invoke(main.cli, ["topology", "route", "x.toml", "a"])
    assert result.exit_code == 2 and "Missing argument 'B'" in result.stderr
    result = CliRunner().invoke(main.cli, ["topology", "route", "x.toml", "a", "b", "c"])
    assert result.exit_code == 2 and "unexpected extra argument (c)" in result.stderr


@pytest.mark.parametrize("words", ["check", "topology advise"])
def test_what_reads_an_export_says_what_it_needs_the_topology_file_for(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp").mkdir()
    result = CliRunner().invoke(main.cli, [*words.split(), "--log", "exp"])
    assert result.exit_code == 1 and result.stderr.count("\n") == 1
    assert re.search(
        r"mombroker.toml: no such file or directory: .* --file or \$MOM_FILE; it says .* exp is", result.stderr
    )


@pytest.mark.parametrize(
    "words", ["status", "queue list", "topology validate", "topology status", "check", "log tail", "log export --to x"]
)
def test_both_ways_to_name_the_topology_file_lead_to_it(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for more in (["none.toml"], ["--file", "none.toml"], ["-f", "none.toml"]):
        result = CliRunner().invoke(main.cli, [*words.split(), *more], env={"MOM_FILE": "other.toml"})
        assert result.exit_code == 1 and "none.toml: no such file" in result.stderr
    result = CliRunner().invoke(main.cli, [*words.split(), "a.toml", "-f", "b.toml"])
    assert result.exit_code == 2 and "a.toml and --file b.toml: name one of them" in result.stderr


def test_help_loads_neither_the_reactor_nor_the_store_nor_the_tables():
    code = (
        "import sys; from mombroker.admin.cli.main import cli; cli(['--help'], standalone_mode=False);"
        "print([m for m in ('twisted', 'sqlite3', 'rich', 'msgpack', 'asyncio') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    "error, code, line",
    [
        (MomError("no such thing; try another"), 1, "Error: no such thing; try another\n"),
        (StoreFailed("x"), 3, "Error: x\n"),
        (PermissionError(13, "Permission denied", "a/b"), 1, "Error: a/b: permission denied\n"),
    ],
)
def test_a_refusal_is_one_line_and_an_exit_code(monkeypatch, error, code, line):
    def refuse():
        raise error

    monkeypatch.setattr(main.LazyGroup, "get_command", lambda self, ctx, name: click.Command(name, callback=refuse))
    result = CliRunner().invoke(main.cli, ["anything"])
    assert (result.exit_code, result.stderr, result.stdout) == (code, line, "")


def test_the_help_lists_every_exit_code_with_its_meaning():
    told = CliRunner().invoke(main.cli, ["--help"], terminal_width=100).stdout
    assert [line.split(maxsplit=1) for line in re.findall(r"^ +(\d+ +.+)", told, re.M)] == [
        [str(int(code)), code.says] for code in ExitCode
    ]


NUMBER = re.compile(r"(?:SystemExit|_exit|\bExit)\(\d|exit_code = \d|sys\.exit\(\d")


def test_no_exit_code_is_written_as_a_number():
    files = [path for part in ("admin", "mombroker/net") for path in (reference.ROOT / part).rglob("*.py")]
    assert [path for path in files if NUMBER.search(path.read_text())] == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(reference.ROOT)))
def test_no_text_tells_of_an_exit_code_that_there_is_not(path):
    told = re.findall(r"exit\s+code\s+(?:is\s+)?(\d+)", path.read_text(), re.I)
    assert {int(code) for code in told} <= {*ExitCode}


def test_wrong_usage_is_exit_code_2(tmp_path):
    for words in (
        ["nonsense"],
        ["status", "--nonsense"],
        ["agent", "deadletters", "show", "--server", "a", "no number"],
    ):
        assert CliRunner().invoke(main.cli, words).exit_code == 2


def test_a_missing_file_is_refused_with_its_name(tmp_path):
    result = CliRunner().invoke(main.cli, ["status", "--file", str(tmp_path / "none.toml")])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1 and "none.toml" in result.stderr


def test_completion_of_the_root_names_the_commands():
    found = main.cli.shell_complete(click.Context(main.cli), "st")
    assert [item.value for item in found] == ["status", "store"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_an_output_that_cannot_be_written_is_one_line():
    command = [sys.executable, "-m", "mombroker.admin.cli.main", "topology", "generate", "flat", "3"]
    env = {**os.environ, "PYTHONPATH": str(reference.ROOT)}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=env, check=False)
    text = "Error: what this prints cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, text)


@pytest.mark.parametrize("path", reference.files(), ids=lambda path: path.name)
def test_what_is_made_from_the_code_is_up_to_date(path):
    same = path.read_text() == reference.files()[path]
    assert same, "run python -m mombroker.admin.cli.reference"


def test_every_key_of_the_topology_file_is_explained():
    for name, (_, known) in topology_reference.TABLES.items():
        assert topology_reference.MEANINGS[name].keys() == known.keys(), name
    tables = {*topology_reference.TABLES, "limits", "policies", "permissions"} - {"", "replicas"}
    assert {*config.TOP} == {*config.ABOVE, *tables}
    said = dict(topology_reference.COMMENT.findall(inspect.getsource(Limits)))
    assert config.LIMITS.keys() <= said.keys(), "each limit has a comment behind it"


def test_the_example_of_the_reference_of_the_topology_file_is_valid(tmp_path):
    examples = [example.lstrip("!") for _, example in config.SERVER.values()]
    assert config.loads(topology_reference.HEAD.partition("```toml\n")[2].partition("```")[0], tmp_path).name == "demo"
    assert tomllib.loads("\n".join(examples)).keys() == config.SERVER.keys()


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_completion_of_a_shell_is_one_that_it_can_read(shell):
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    script = reference.ROOT / "etc" / "completion" / f"mom.{shell}"
    assert CliRunner().invoke(main.cli, ["completion", shell]).stdout == script.read_text()
    subprocess.run([shell, "-n", script], check=True)


def test_what_the_terminal_has_no_sign_for_is_escaped():
    code = "from mombroker.admin.cli import main; main.cli = lambda prog_name: print('gr\\xfcn \\u2192'); main.main()"
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True)
    assert (done.stdout, done.returncode) == (b"gr\xfcn \\u2192\n", 0), done.stderr


def test_after_an_upgrade_the_old_servers_can_be_stopped_with_a_file_in_former_words(tmp_path):
    """Nothing starts with it."""
    file = tmp_path / "bus.toml"
    file.write_text(
        '[bus]\nname = "b"\n[servers.a]\nlisten = "127.0.0.1:7001"\n'
        '[[policies]]\nmatch = "queue:*"\nmax_messages = 5\noverflow = "drop-oldest"\n'
    )
    said = "policies[0]: overflow is not 'drop-oldest' any more: write 'drop-head'"
    for words in (["down"], ["server", "stop", "a"]):
        arguments = [*words, "--file", str(file)] if words[0] == "server" else [*words, str(file)]
        result = CliRunner().invoke(main.cli, arguments, prog_name="mom")
        assert result.exit_code == 0 and f"{said} before a server starts" in result.stderr, result.output
    result = CliRunner().invoke(main.cli, ["up", str(file)], prog_name="mom")
    assert result.exit_code == 1 and said in result.stderr


def test_a_column_that_was_called_otherwise_is_named():
    with pytest.raises(click.UsageError, match="there is no column 'held' any more: write 'unacked'"):
        choose("held", ["ready", "unacked"])


LISTS = [
    name for name, command in LEAVES.items()
    if name.endswith(" list") and any(each.name == "server" for each in command.params)
]  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_a_server_that_is_down_is_one_line_that_says_what_to_do(name, tmp_path):
    file = tmp_path / "mombroker.toml"
    file.write_text('[bus]\nname = "demo"\n\n[servers.a]\nlisten = "127.0.0.1:16399"\n')
    result = CliRunner().invoke(main.cli, [*name.split()[1:], "--server", "a", "-f", str(file)], prog_name="mom")
    assert (result.exit_code, result.stdout) == (ExitCode.REFUSED, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ") and "start it by `mom server start a`" in line
