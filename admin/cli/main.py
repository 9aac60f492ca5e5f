"""The root of the command line. A command's module is imported when the command is run, not before."""

import errno
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from io import TextIOWrapper

import click
from click.shell_completion import CompletionItem

import mombroker
from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.core.errors import MomError, StoreFailed
from mombroker.core.topology import listed, suggestion
from mombroker.net.exit_codes import ExitCode

# name: (module, attribute, first line of its help); a test holds the help against the command's own.
COMMANDS = {
    "agent": ("agent", "agent", "Agents: list, show, send, deploy, move, delete, deadletters."),
    "analyze": (
        "analyze",
        "analyze",
        "What ordering has cost, from the logs: report, trend, compare.",
    ),
    "bench": (
        "bench",
        "bench",
        "Measure: pingpong, hop, desk, table, commit, recover, orderings, domain, loop, stomp, growth, order, group, "
        "replicas, catchup, chaos, failover, peers.",
    ),
    "check": ("check", "check", "Judge from the logs alone whether the bus kept its promises."),
    "completion": (
        "completion",
        "completion",
        "Print the script that lets a shell complete commands, options, servers and queues.",
    ),
    "connections": ("connections", "connections", "The clients that are connected now: list, close."),
    "demo": (
        "demo",
        "demo",
        "Run a project's history on a bus, kill routers and change domains, and judge the result.",
    ),
    "dlq": ("dlq", "dlq", "Dead letters of clients: list, retry."),
    "domain": ("domain", "domain", "Domains of causality: reset."),
    "down": ("up", "down", "Stop the servers that `mom up` started."),
    "group": ("groups", "group", "Groups of agents: list, show, remove."),
    "log": (
        "log",
        "log",
        "The record of what every message did: tail, diagram, shiviz, trace, audit, export, compact.",
    ),
    "paper": ("paper", "paper", "Measure again what the papers measured: list, run, spread, report."),
    "permission": (
        "permission",
        "permission",
        "Permissions of users and roles, on all servers: list, set, delete, check.",
    ),
    "policy": ("policy", "policy", "Policies of destinations, by pattern: list, set, delete."),
    "queue": ("queue", "queue", "Queues: list, show, create, delete, purge, browse, move, retry, release."),
    "receive": ("client", "receive", "Take messages from a queue, or from topics, and write them to standard output."),
    "replica": ("replica", "replica", "The replicas of a server: status, transfer, add, remove, replace, begin, end."),
    "request": ("client", "request", "Send a message, wait for its answer, and write that to standard output."),
    "role": ("role", "role", "Roles of users: list, grant, revoke."),
    "run": ("run", "run", "Run one server for clients of STOMP and AMQP, without a topology file: the quickest start."),
    "send": ("client", "send", "Send a message; when this returns, it is durable."),
    "serve": ("serve", "serve", "Run one agent server, or one of its replicas as SERVER/REPLICA, in the foreground."),
    "server": ("server", "server", "One server of a bus: join, lost, start, stop, restart, reload, drain."),
    "sim": (
        "sim",
        "sim",
        "A bus in virtual time: run, explore, diagram, compare, change.",
    ),
    "status": ("status", "status", "How the servers are."),
    "store": ("store", "store", "A server's store: verify, backup, info, salvage, compact, accept, clock."),
    "subscription": (
        "subscription",
        "subscription",
        "Durable and shared subscriptions: list, show, create, delete, purge, browse, move, retry, release.",
    ),
    "top": ("top", "top", "What the servers do now, and the fullest queues."),
    "tls": ("tls", "tls", "Certificates of servers: init."),
    "topic": ("topic", "topic", "Topics: list, show, create, move, delete."),
    "topology": (
        "topology",
        "topology",
        "Topologies: plan, apply, status, abort, export, history, validate, show, render, route, generate, import, "
        "adopt, advise.",
    ),
    "up": ("up", "up", "Run all servers of a topology file on this machine."),
    "user": ("user", "user", "Users of clients, on all servers: list, add, passwd, limit, delete."),
    "why": ("status", "why", "What the waiting messages of a server wait for."),
}

# What commands and options were called before.
FORMER = {"deadletter": "mom agent deadletters", "deadletters": "mom agent deadletters"}
FORMER_OPTIONS = {"--held": "--unacked"}

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class LazyGroup(Group):
    """A group that knows its commands' names and one-line help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[name]
        command: click.Command = getattr(import_module(f"mombroker.admin.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        return [CompletionItem(name, help=COMMANDS[name][2]) for name in names] + click.Command.shell_complete(
            self, ctx, incomplete
        )

    def hint(self, ctx: click.Context, name: str) -> str:
        """The nearest command, else those of all groups that are called so."""
        if name in FORMER:
            return f"it is `{FORMER[name]}` now"
        near = suggestion(name, COMMANDS)
        there = [] if near else [full for full, _ in commands() if full.count(" ") > 1 and full.split()[-1] == name]
        return near or (f"there are {listed(there, 12)}" if there else "see `mom --help`")

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            options.judge(ctx)
            return result
        except click.NoSuchOption as error:
            if former := FORMER_OPTIONS.get(error.option_name):
                raise click.UsageError(f"there is no {error.option_name} any more: write {former}", error.ctx) from None
            raise
        except MomError as error:
            raise click.ClickException(str(error)) from None
        except StoreFailed as error:
            raise options.Failure(ExitCode.UNWRITABLE, str(error)) from None
        except OSError as error:
            if error.filename is not None:
                raise click.ClickException(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
            if error.errno not in FULL:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries once more at its end
            raise click.ClickException(f"what this prints cannot be written: {error.strerror}") from None
        except _spark_errors() as error:
            from mombroker.admin.analysis.session import failure

            raise click.ClickException(failure(error)) from None
        except UnicodeEncodeError as error:
            text = error.object[max(0, error.start - 20) : error.end + 20]
            raise click.ClickException(
                f"{text!a} cannot be written in {error.encoding}: give what has a form in it"
            ) from None
        except RecursionError:  # an agent may keep lists in lists a thousand deep
            raise click.ClickException("this is nested too deeply to be shown") from None


def _spark_errors() -> tuple[type[Exception], ...]:
    """Asked for when something was raised: what needs no Spark shall not wait for its import."""
    from mombroker.admin.analysis.session import errors

    return errors()


HELP = "\n".join([
    "Run, watch and repair a bus of causally ordered agent servers.\n",
    "\b\nExit codes:", *(f"  {code:<4} {code.says}" for code in ExitCode),
])  # fmt: skip


@click.group(cls=LazyGroup, help=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(mombroker.__version__, prog_name="mom")
def cli() -> None:
    """The root of all commands."""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with its full name, groups before their members."""
    stack: list[tuple[str, click.Command]] = [("mom", cli)]
    while stack:
        name, command = stack.pop()
        yield name, command
        if isinstance(command, click.Group):
            ctx = click.Context(command)
            members = ((each, command.get_command(ctx, each)) for each in reversed(command.list_commands(ctx)))
            stack.extend((f"{name} {each}", member) for each, member in members if member is not None)


def main() -> None:
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # what the terminal has no sign for
    cli(prog_name="mom")


if __name__ == "__main__":
    main()
