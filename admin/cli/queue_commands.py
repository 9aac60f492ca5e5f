"""The commands that `mom queue` and `mom subscription` have in common: show, delete, purge, browse, move, release."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mombroker.admin.cli import destinations, moves, options
from mombroker.admin.cli.output import output_options, show, show_one

if TYPE_CHECKING:
    from mombroker.net.adminclient import AdminClient

HOLDER = click.option("-s", "--server", "holder", metavar="NAME", required=True, help="The server that is gone.")


@dataclass(frozen=True)
class Named:
    """A queue or subscription by its name on the bus, and the server to ask if one is named."""

    file: Path
    server: str | None
    shown: str

    def ask(self, verb: str, **args: Any) -> dict[str, Any]:
        return destinations.ask(self.file, self.server, self.shown, verb, **args)

    def confirmed(self, verb: str, yes: bool) -> dict[str, Any]:
        return destinations.confirmed(self.file, self.server, self.shown, verb, yes)

    def connect(self) -> "AdminClient":
        return destinations.connect(self.file, self.server, self.shown)


@dataclass(frozen=True)
class Noun:
    """What the commands of a group are about.

    word   as in their help, with `like`, the arguments that name one in examples
    own    puts the arguments and options `names` before a command; `shown` makes of their values the name on the bus
    """

    word: str
    like: str
    own: Callable[[Any], Any]
    names: tuple[str, ...]
    shown: Callable[..., str]

    def named(self, server: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Puts before a command what names one, with --server or without, and hands it `named`."""

        def wrap(function: Callable[..., None]) -> Callable[..., None]:
            @wraps(function)
            def command(file: Path, server: str | None = None, **args: Any) -> None:
                shown = self.shown(*(args.pop(name) for name in self.names))
                function(Named(file, server, shown), **args)

            inner: Callable[..., None] = self.own(command)
            at = options.server_option(f"Ask this server; without it the {self.word}'s home.")
            return options.file_option(at(inner) if server else inner)

        return wrap

    def command(self, function: Callable[..., None], text: str, server: bool = True) -> click.Command:
        """`text` is the help, with {word} and {like}."""
        help = cleandoc(text).format(word=self.word, like=self.like)
        return click.command(function.__name__, help=help)(self.named(server)(function))

    def add_to(self, group: click.Group) -> None:
        for make in (_show, _delete, _purge, _browse, _move, _release):
            group.add_command(make(self))


def _show(noun: Noun) -> click.Command:
    @output_options
    def show(named: Named, output: str, columns: str) -> None:
        show_one(named.ask("destination"), output, columns)

    return noun.command(show, """
        Show one {word} with its consumers and its policy.

        \b
        Example:
          mom {word} show {like}
          mom {word} show {like} -o json
        """)  # fmt: skip


def _delete(noun: Noun) -> click.Command:
    @options.yes_option
    @output_options
    def delete(named: Named, yes: bool, output: str, columns: str) -> None:
        show_one(named.confirmed("delete_destination", yes), output, columns)

    return noun.command(delete, """
        Delete a {word} with what is in it. Its consumers get an error.

        \b
        Example:
          mom {word} delete {like} --yes
        """)  # fmt: skip


def _purge(noun: Noun) -> click.Command:
    @options.yes_option
    @output_options
    def purge(named: Named, yes: bool, output: str, columns: str) -> None:
        show_one(named.confirmed("purge", yes), output, columns)

    return noun.command(purge, """
        Drop all messages of a {word} that no consumer has.

        From the answer on nobody gets them; where there are many it takes a while until they are gone from the disk.

        \b
        Example:
          mom {word} purge {like} --yes
        """)  # fmt: skip


def _browse(noun: Noun) -> click.Command:
    @destinations.where_option
    @click.option("--unacked", is_flag=True, help="Those that consumers have or that back off, instead of ready ones.")
    @click.option("--bytes", "most", type=options.AMOUNT, default=200, show_default=True, help="Of each body, at most.")
    @destinations.limit_option(100, "At most so many.")
    @output_options
    def browse(named: Named, where: str, unacked: bool, most: int, limit: int, output: str, columns: str) -> None:
        with named.connect() as client:
            found = destinations.messages(client, named.shown, limit, output, where=where, unacked=unacked, bytes=most)
            rows = list(found)
        show(rows, output, columns, destinations.BRIEF)

    return noun.command(browse, """
        Look at the messages of a {word} in the order in which they will be given out; none is taken.

        What has expired is left out, and what waits until another of its group was given. A body that is no text is
        `body_base64` in JSON.

        \b
        Example:
          mom {word} browse {like}
          mom {word} browse {like} --where "customer = 'ann'" -o json
        """)  # fmt: skip


def _move(noun: Noun) -> click.Command:
    @click.argument("target", required=False)
    @click.argument("ids", metavar="[ID]...", type=options.ROW, nargs=-1)
    @destinations.where_option
    @destinations.limit_option(destinations.EVERY, "At most so many, the first ones.")
    @click.option("--to", "home", metavar="SERVER", help=f"Move the {noun.word} itself to this server.")
    @click.option("--release", is_flag=True, help="With --to: do not wait for what consumers have; give it out again.")
    @click.option("--no-wait", is_flag=True, help="With --to: do not wait for the end.")
    @output_options
    def move(
        named: Named, target: str | None, ids: tuple[int, ...], where: str, limit: int, home: str | None,
        release: bool, no_wait: bool, output: str, columns: str,
    ) -> None:  # fmt: skip
        if (home is None) == (target is None):
            raise click.UsageError("name a queue for the messages, or by --to a server for all of it")
        if target is None and where:
            raise click.UsageError("--where chooses messages; --to moves all of it")
        if target is None:
            found = moves.begin(lambda: named.ask("move_destination", to=home, release=release))
            show_one(found if no_wait else moves.follow(named.file, found), output, columns)
            return
        to = destinations.queue_of(target)
        with named.connect() as client:
            found = destinations.move(client, named.shown, limit, target=to, where=where, ids=list(ids))
        show_one({"destination": named.shown, "target": to, "moved": found["moved"]}, output, columns)

    return noun.command(move, """
        Move the ready messages of a {word} to a queue, which may live anywhere: all, some by selector, or some by id.

        What comes while this runs stays. Each message is moved once, whatever stops on the way.

        With --to the {word} itself moves to another server, with all that is in it, while clients use it. What
        consumers have they settle where they got it; with --release it is given out again, marked as redelivered. The
        move goes on by itself if this command is stopped, or a server: `mom {word} show` tells what it waits for.

        \b
        Example:
          mom {word} move {like} orders.old
          mom {word} move {like} urgent --where "JMSPriority > 7"
          mom {word} move {like} --to paris
        """)  # fmt: skip


def _release(noun: Noun) -> click.Command:
    @HOLDER
    @output_options
    def release(named: Named, holder: str, output: str, columns: str) -> None:
        show_one(named.ask("release", holder=holder), output, columns)

    text = """
        Give out again what clients of a dead server have. If that server lives after all, some may be handled twice.

        \b
        Example:
          mom {word} release {like} --server lyon
        """
    return noun.command(release, text, server=False)
