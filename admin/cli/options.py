"""What most commands share: which topology file, which server, and a connection to it."""

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from mombroker.core.errors import MomError
from mombroker.core.ids import home_of, is_id
from mombroker.core.times import LAST_NS, LAST_S
from mombroker.net.exit_codes import ExitCode

if TYPE_CHECKING:
    from mombroker.core.topology import Server, Topology
    from mombroker.net.adminclient import AdminClient

F = TypeVar("F", bound=Callable[..., Any])
V = TypeVar("V")
DEFAULT_FILE = "mombroker.toml"
RUN_FOLDER = Path("mombroker-data")  # of `mom run`
GIVEN = "mombroker.file"  # in the context of a command: the path of its option --file
SILENT = "mombroker.silent"  # in the context of a command: servers that did not answer
FAILURE = "mombroker.failure"  # in the context of a command: why it fails once it has shown what it has

ROW = click.IntRange(1, LAST_NS)  # the id of something that a server keeps
AMOUNT = click.IntRange(0, LAST_NS)
DESTINATION = re.compile(r"/(queue|topic|temp-\w+|remote-temp-\w+|reply-queue|amq|exchange)/|[\w.-]+:")


class Failure(click.ClickException):
    """The command ends here with this exit code, and one line. A MomError ends it with `REFUSED`."""

    def __init__(self, code: ExitCode, sentence: str):
        super().__init__(sentence)
        self.exit_code = code  # type: ignore[misc]  # the class has one, an instance may have another


def utf8(data: bytes, what: str) -> str:
    """The text of a file, without the mark at its beginning that some editors write. Raises MomError."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MomError(f"{what} is not UTF-8, from its byte {error.start} on: save the file as UTF-8") from None


class Number(click.FloatRange):
    """A finite one, in this range."""

    name = "float range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value!r} is no finite number.", param, ctx)
        return number


class Seconds(click.FloatRange):
    """From 0 up. What is longer than a server can reckon with, as `inf`, is the longest that it can."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        if seconds != seconds:
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return min(seconds, float(LAST_S))


class Time(click.ParamType[datetime]):
    """As ISO 8601 has it; without a zone it is UTC, as in the logs."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            time = datetime.fromisoformat(value)
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        except (ValueError, OverflowError):  # of year 1 or 9999 in a zone, before or after all years in UTC
            self.fail(f"{value!r} is no time like 2026-03-01T12:00:00.", param, ctx)


def file_option(command: F) -> F:
    """The topology file as `--file FILE`, short `-f`, and as the argument `FILE`; where the command has other
    arguments, the first one is the file if it ends in .toml.

    To be the topmost of a command's arguments.
    """
    if not any(isinstance(each, click.Argument) for each in getattr(command, "__click_params__", ())):
        return either("file", f"The topology file. [default: $MOM_FILE or {DEFAULT_FILE}]")(command)
    return click.option(
        "-f", "--file", "file", cls=FileOption, type=click.Path(path_type=Path), envvar="MOM_FILE",
        default=DEFAULT_FILE, is_eager=True,
        help=f"The topology file, or give it as first argument, *.toml. [default: $MOM_FILE or {DEFAULT_FILE}]",
    )(command)  # fmt: skip


class FileOption(click.Option):
    """`--file FILE` of a command with arguments. Without it a first argument `*.toml` is the file, unless it is written
    as a destination (`/queue/...`, `queue:...`), and the arguments behind it move up."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        taken = [each for each in ctx.command.params if isinstance(each, click.Argument)]
        given = [opts[each.name] for each in taken if isinstance(opts.get(each.name), str | tuple)]
        words = [word for value in given for word in ([value] if isinstance(value, str) else value)] + args
        if self.name not in opts and words and words[0].endswith(".toml") and not DESTINATION.match(words[0]):
            moved = {name: value for name, value in opts.items() if name not in [each.name for each in taken]}
            moved[self.name], *words = words
            for each in taken:
                several = len(words) if each.nargs < 0 else 1
                if words:
                    moved[each.name] = tuple(words) if each.nargs < 0 else words[0]
                words = words[several:]
            for name in [*opts]:
                del opts[name]  # type: ignore[attr-defined]  # it is the parser's own dict
            opts.update(moved)  # type: ignore[attr-defined]
            args[:] = words
        return super().handle_parse_result(ctx, opts, args)


def either(name: str, text: str) -> Callable[[F], F]:
    """A path as an argument or as `--file`, of which `text` is the help."""

    def argument(ctx: click.Context, param: click.Parameter, value: Path) -> Path:
        given: Path | None = ctx.meta.pop(GIVEN, None)
        if given is None:
            return value
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{value} and --file {given}: name one of them")
        return given

    def option(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
        ctx.meta[GIVEN] = value

    path = click.Path(path_type=Path)
    first = click.argument(name, type=path, envvar="MOM_FILE", default=DEFAULT_FILE, callback=argument)
    second = click.option(
        "-f", "--file", "named", type=path, is_eager=True, expose_value=False, callback=option, metavar="FILE",
        help=text,
    )  # fmt: skip
    return lambda command: first(second(command))


def server_option(text: str) -> Callable[[F], F]:
    """`--server NAME`, with what it means to the command."""
    return click.option(
        "-s", "--server", metavar="NAME", envvar="MOM_SERVER", shell_complete=servers, help=f"{text} [env: MOM_SERVER]"
    )


def servers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of servers that begin so, for a shell; none where there is no topology file that can be read."""
    with suppress(MomError):
        return [name for name in load(file_of(ctx)).servers if name.startswith(incomplete)]
    return []


def file_of(ctx: click.Context) -> Path:
    """The topology file of a command that is not written to its end."""
    return ctx.params.get("file") or Path(DEFAULT_FILE)


def filled(ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
    """Of an option that says which of all are meant: an empty text, as of a variable of a script that is not set, does
    not mean all of them."""
    if given == "" and ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE:
        raise click.BadParameter("is empty: say which, or leave the option out", ctx, param)
    return given


def yes_option(command: F) -> F:
    """`--yes`; see `confirm`."""
    return click.option("--yes", is_flag=True, help="Do it without asking.")(command)


def confirm(yes: bool, question: str) -> None:
    """Ask, once it is known that there is something to be done."""
    if not yes:
        click.confirm(question, abort=True, err=True)


def found(file: Path) -> Path:
    """The topology file; where none is named and none lies here, that of `mom run` in this folder."""
    ran = RUN_FOLDER / DEFAULT_FILE
    return ran if file == Path(DEFAULT_FILE) and not file.exists() and ran.exists() else file


def source(path: Path, kinds: str) -> Path:
    """`found`, where not only a topology file will do. Raises MomError if nothing is there."""
    path = found(path)
    if not path.exists():
        raise MomError(f"{path}: no such file or folder: name {kinds}")
    return path


def load_for_addresses(file: Path) -> "Topology":
    """As `load`, for what is to work on servers that still run, though the file has former words of policies."""
    from mombroker.net import config

    path = found(file)
    return config.load(path, lambda line: click.echo(f"mom: {path}: {line}", err=True))


def load(file: Path, needed: str = "") -> "Topology":
    """The topology of a file. Raises MomError, where there is no file with what it is `needed` for, if that is more
    than the addresses of servers."""
    from mombroker.net import config

    path = found(file)
    if needed and not path.exists():
        raise MomError(f"{path}: no such file or directory: {config.NAMED_BY}; {needed}")
    return config.load(path)


def importable(file: Path) -> None:
    """Agent classes may lie beside the topology file, or in the current folder."""
    sys.path[:0] = [str(file.resolve().parent), str(Path.cwd())]


def pick(topology: "Topology", name: str | None, by: str = " by --server") -> "Server":
    """The server of this name; without a name the only one. `by` is how the command takes a name, "" as an argument."""
    if name is None and len(topology.servers) == 1:
        return next(iter(topology.servers.values()))
    if name not in topology.servers:
        wrong = "several servers are in this file" if name is None else f"there is no server {name!r}"
        raise click.UsageError(f"{wrong}: name one of {', '.join(topology.servers)}{by if name is None else ''}")
    return topology.servers[name]


def pick_process(topology: "Topology", name: str | None) -> "Server":
    """The process of this name, SERVER or SERVER/REPLICA; without a name the only one."""
    views = processes(topology)
    if name is None and len(views) == 1:
        return views[0]
    found = next((view for view in views if view.label == name), None)
    if found is None:
        wrong = "several servers are in this file" if name is None else f"there is no server {name!r}"
        by = " by --server" if name is None else ""
        raise click.UsageError(f"{wrong}: name one of {', '.join(view.label for view in views)}{by}")
    return found


def processes(topology: "Topology") -> "list[Server]":
    """One for each server, or each of its replicas."""
    return [view for server in topology.servers.values() for view in server.views()]


def chosen(topology: "Topology", name: str | None) -> "list[Server]":
    """The named server, or all."""
    return [pick(topology, name)] if name else list(topology.servers.values())


def connect(topology: "Topology", server: "Server") -> "AdminClient":
    """A client of the running server. Its token lies in its data folder."""
    from mombroker.net import adminclient

    return adminclient.connect(topology, server.label)


def ask(topology: "Topology", server: "Server", verb: str, /, **args: Any) -> dict[str, Any]:
    """One request to a running server. Raises MomError when it refuses or does not run."""
    with connect(topology, server) as client:
        return client.request(verb, **args)


def answers(
    topology: "Topology", name: str | None, verb: str, **args: Any
) -> "Iterator[tuple[Server, dict[str, Any]]]":
    """The answer of the named server; without a name of all that answer, as by `visits`."""
    return visits(topology, name, lambda server: ask(topology, server, verb, **args))


def visits(topology: "Topology", name: str | None, act: "Callable[[Server], V]") -> "Iterator[tuple[Server, V]]":
    """What `act` gives for the named server; without a name for all that answer (for each that does not, a line on
    stderr, and the command fails once it has shown the rest).

    Raises MomError if none answers.
    """
    answered, silent = False, []
    for server in chosen(topology, name):
        try:
            answer = act(server)
        except MomError as error:
            if name:
                raise
            click.echo(f"mom: {error}", err=True)
            silent.append(server.name)
        else:
            answered = True
            yield server, answer
    if not answered:
        raise MomError("no server of this bus answers; see `mom status`")
    incomplete(silent)


def utc(ms: int) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1_000))
    return f"{whole}.{ms % 1_000:03d}Z"


def incomplete(silent: list[str]) -> None:
    """These servers did not answer: what the command shows is not all, and it is to fail at its end."""
    if silent:
        click.get_current_context().meta[SILENT] = silent
        fail_at_end(f"{', '.join(silent)} did not answer: this is not all")


def find(
    topology: "Topology", verb: str, has: Callable[[dict[str, Any]], bool], what: str, see: str, **args: Any
) -> "Server":
    """The server whose answer says that it has something; see `nothing`."""
    silent = list[str]()
    for server in topology.servers.values():
        try:
            if has(ask(topology, server, verb, **args)):
                return server
        except MomError:
            silent.append(server.name)
    incomplete(silent)
    if len(silent) == len(topology.servers):
        raise MomError("no server of this bus answers; see `mom status`")
    raise nothing(what, see)


def nothing(what: str, see: str) -> Failure:
    """None of the servers that were asked has it. If some did not answer, nobody knows whether it is there."""
    if silent := click.get_current_context().meta.get(SILENT):
        them = "it" if len(silent) == 1 else "them"
        return Failure(
            ExitCode.INCOMPLETE,
            f"{', '.join(silent)} did not answer, and no other server has a {what}: start {them}, or wait until "
            f"`mom status` shows {them}, and try again",
        )
    return Failure(ExitCode.NOTHING, f"there is no {what}: see `{see}`")


def fail_at_end(sentence: str) -> None:
    """The command shows what it has, and then says this, with exit code 5: it is not all."""
    click.get_current_context().meta[FAILURE] = sentence


def judge(ctx: click.Context) -> None:
    """The end of a command. Raises Failure if it is to fail."""
    if sentence := ctx.meta.get(FAILURE):
        raise Failure(ExitCode.INCOMPLETE, sentence)


def home(topology: "Topology", agent: str, name: str | None) -> "Server":
    """The server to ask about an agent: the named one, else where the agent lives, as the bus says, which knows who has
    moved; if nobody answers, by its id or the file."""
    first = home_of(agent) if is_id(agent) else None
    first = first or next((each.server for each in topology.agents if each.name == agent), None)
    if name is None and len(topology.servers) > 1:
        name = _lives(topology, agent, first)
    return pick(topology, name or first)


def _lives(topology: "Topology", agent: str, guess: str | None) -> str:
    """Where an agent lives. Any server knows, and the most likely home is asked first; without a guess the registry,
    which decides names."""
    assert topology.registry is not None, "a bus of several servers has one"
    first = topology.servers.get(guess or "") or topology.servers[topology.registry]
    for server in [first, *(each for each in topology.servers.values() if each is not first)]:
        try:
            client = connect(topology, server)
        except MomError:
            continue
        with client:
            return str(client.request("home", agent=agent)["home"])
    if guess is not None:
        return guess
    raise MomError(f"no server of this bus answers, and the file does not say where {agent} lives; see `mom status`")
