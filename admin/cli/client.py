"""`mom send`, `mom receive`, `mom request`: a client of any server that speaks STOMP."""

import json
import re
import sys
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mombroker.admin.cli import options
from mombroker.admin.cli.agent import values
from mombroker.admin.cli.output import echo_json, form_option
from mombroker.core.errors import MomError
from mombroker.net.exit_codes import ExitCode

if TYPE_CHECKING:
    from mombroker.jms import Context, Message

URL = "stomp://127.0.0.1:61613"
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\"}
DIRECTIVE = re.compile(r"%(?:\{([^}]*)\}|(.))|(\\[nt0\\])", re.S)
FORMAT_HELP = """What is written of a message: %b its body, %i id, %d destination, %k kind, %p priority, %c deliveries,
%t time (UTC), %r where to reply, %o correlation id, %P all properties as JSON, %{NAME} a property, %% a percent sign;
and the escapes for line end, tab and NUL."""


def server_options(command: options.F) -> options.F:
    """Which server: by URL, else by the topology file, else the one of `mom run`."""
    url = click.option(
        "--url", envvar="MOM_URL", metavar="URL",
        help=f"stomp://[USER:PASSCODE@]HOST:PORT, stomps:// for TLS. [env: MOM_URL; else by topology file; else {URL}]",
    )  # fmt: skip
    return options.file_option(options.server_option("This server of the topology file.")(url(command)))


def connect(file: Path, server: str | None, url: str | None, **more: Any) -> "Context":
    from mombroker import jms

    return jms.connect(url or _listed(file, server), reconnect=0.0, **more)


def _listed(file: Path, server: str | None) -> str:
    """Where a server of the topology file takes clients of this machine."""
    if server is None and not options.found(file).exists():
        return URL
    from mombroker.core.topology import WILDCARD, address

    topology = options.load(file)
    at = options.pick(topology, server)
    if at.stomp is None and at.stomp_tls is not None:
        port = address(at.stomp_tls)[1]
        raise MomError(
            f"{at.name} takes clients by TLS alone: give --url stomps://HOST:{port}, with a HOST that its certificate "
            "names, and ?ca=FILE behind it unless the system trusts who signed that"
        )
    if at.stomp is None:
        raise MomError(f"{at.name} has no `stomp` in the topology file: give --url, or name another server")
    urls = []
    for host, port in (address(view.stomp) for view in at.views() if view.stomp):
        host = "127.0.0.1" if host in WILDCARD else f"[{host}]" if ":" in host else host
        urls.append(f"stomp://{host}:{port}")
    return ",".join(urls)  # of replicas one takes clients


def message_options(command: options.F) -> options.F:
    """What can be said of a message."""
    for option in (
        click.option("--priority", type=click.IntRange(0, 9), default=4, show_default=True, help="9 is most urgent."),
        click.option("--ttl", type=options.Seconds(0, min_open=True), metavar="SECONDS", help="Expires after."),
        click.option("--delay", type=options.Seconds(0), default=0.0, metavar="SECONDS", help="Not before."),
        click.option("--volatile", is_flag=True, help="Its destination may lose it with a crash."),
        click.option("--type", default="", metavar="TYPE", help="What it is; for an agent, the notification."),
        click.option("--group", default="", metavar="GROUP", help="One consumer gets all messages of a group."),
        click.option("-p", "--property", "properties", metavar="NAME=VALUE", multiple=True, help="JSON, else text."),
    ):
        command = option(command)
    return command


def written_options(command: options.F) -> options.F:
    """How a message is written that has come; see `writer`."""
    text = click.option("--format", "form", default=r"%b\n", show_default=True, help=FORMAT_HELP)
    return text(form_option("text")(command))


def told(
    priority: int, ttl: float | None, delay: float, volatile: bool, type: str, group: str, properties: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "priority": priority, "ttl": ttl, "delay": delay, "persistent": not volatile, "type": type, "group": group,
        "properties": values(properties),
    }  # fmt: skip


@click.command()
@server_options
@message_options
@click.option("--lines", is_flag=True, help="Each line of standard input is a message.")
@click.option("--reply-to", metavar="DESTINATION", help="Where answers are wanted.")
@click.option("--correlation-id", default="", metavar="ID", help="What it answers.")
@form_option("text")
@click.argument("destination")
@click.argument("body", required=False)
def send(
    file: Path,
    server: str | None,
    url: str | None,
    lines: bool,
    reply_to: str | None,
    correlation_id: str,
    output: str,
    destination: str,
    body: str | None,
    **rest: Any,
) -> None:
    """Send a message; when this returns, it is durable.

    DESTINATION is /queue/NAME, /topic/NAME or /agent/NAME, which takes a notification as JSON. Without BODY it is read
    from standard input.

    \b
    Example:
      mom send /queue/orders "one pizza" -p customer=ann -p size=3
      mom send /topic/news --lines < headlines.txt
    """
    more = {**told(**rest), "reply_to": reply_to, "correlation_id": correlation_id}
    with connect(file, server, url) as context:
        sent = 0
        for content in map(_line, sys.stdin.buffer) if lines else [_content(body)]:
            last = context.send(destination, content, wait=not lines, **more)
            sent += 1
        context.flush(float("inf"))
    if output == "json":
        echo_json({"destination": destination, "sent": sent} | ({} if lines else {"id": last.id}))


def _content(body: str | None) -> str | bytes:
    return body if body is not None else _text(sys.stdin.buffer.read())


def _line(data: bytes) -> str | bytes:
    return _text(data.rstrip(b"\r\n"))


def _text(data: bytes) -> str | bytes:
    """Text if it can be."""
    with suppress(UnicodeDecodeError):
        return data.decode()
    return data


@click.command()
@server_options
@click.option("-n", "--count", type=click.IntRange(0), default=1, show_default=True, help="So many; 0: without end.")
@click.option("--timeout", type=options.Seconds(0), metavar="SECONDS", help="End when nothing comes for so long.")
@click.option("--where", metavar="SELECTOR", default="", help="Only messages that this selector fits.")
@written_options
@click.option(
    "--durable", default="", metavar="NAME", help="As this durable subscription, with --client-id or --shared."
)
@click.option("--client-id", default="", metavar="ID", help="Who subscribes.")
@click.option("--shared", is_flag=True, help="Several may have the durable subscription.")
@click.argument("destinations", metavar="DESTINATION...", nargs=-1, required=True)
def receive(
    file: Path,
    server: str | None,
    url: str | None,
    count: int,
    timeout: float | None,
    where: str,
    form: str,
    output: str,
    durable: str,
    client_id: str,
    shared: bool,
    destinations: tuple[str, ...],
) -> None:
    """Take messages from a queue, or from topics, and write them to standard output.

    A message is acknowledged once it is written. The exit code is 6 if fewer came than --count before the --timeout.

    \b
    Example:
      mom receive /queue/orders
      mom receive -n 0 --timeout 1 --format '%i %{customer} %b\\n' /queue/orders
      mom receive -n 0 /topic/news /topic/weather
    """
    write = writer(form, output)
    if durable and not (client_id or shared):
        raise click.UsageError("--durable NAME needs --client-id ID, or --shared if several may have it")
    if shared and not durable:
        raise click.UsageError("--shared goes with --durable NAME")
    wanted: Any = destinations[0] if len(destinations) == 1 else list(destinations)
    asked: dict[str, Any] = {"selector": where, "durable": durable, "shared": shared}
    prefetch = min(count, 100) or 100
    with connect(file, server, url, ack="individual", client_id=client_id) as context:
        consumer = context.consumer(wanted, prefetch=prefetch, **{name: each for name, each in asked.items() if each})
        for _ in range(count) if count else iter(int, 1):
            message = consumer.receive(timeout)
            if message is None:
                if count:
                    raise options.Failure(ExitCode.NOTHING, f"nothing came for {timeout:g} s")
                return
            _out(write(message))
            message.acknowledge(wait=True)


@click.command()
@server_options
@message_options
@click.option("--timeout", type=options.Seconds(0), default=10.0, show_default=True, help="Seconds to wait for it.")
@written_options
@click.argument("destination")
@click.argument("body", required=False)
def request(
    file: Path,
    server: str | None,
    url: str | None,
    timeout: float,
    form: str,
    output: str,
    destination: str,
    body: str | None,
    **rest: Any,
) -> None:
    """Send a message, wait for its answer, and write that to standard output.

    Without --ttl the message expires when nobody waits for the answer any more. Exit code 6 if none came in time.
    /agent/NAME is asked with a notification as JSON, whose name is --type.

    \b
    Example:
      mom request /queue/prices "one pizza" --timeout 2
      mom request /agent/greeter '{"who": "Ann"}' --type examples.greeter.Hello
    """
    from mombroker.jms import TimedOut, questions

    write = writer(form, output)
    with connect(file, server, url) as context:
        wanted = {name: value for name, value in told(**rest).items() if name != "ttl" or value is not None}
        try:
            answer = context.request(destination, _content(body), timeout=timeout, **wanted)
        except TimedOut as error:
            raise options.Failure(ExitCode.NOTHING, str(error)) from None
        if why := questions.failure(answer):
            raise MomError(why)
        _out(write(answer))


def _out(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


# -- format ----------------------------------------------------------------------------------------------------------


FIELDS: dict[str, Callable[["Message"], object]] = {
    "b": lambda message: message.raw,
    "i": lambda message: message.id,
    "d": lambda message: message.headers["destination"],
    "k": lambda message: message.kind,
    "p": lambda message: message.priority,
    "c": lambda message: message.delivery_count,
    "t": lambda message: options.utc(round(message.timestamp * 1_000)),
    "r": lambda message: message.reply_to or "",
    "o": lambda message: message.correlation_id,
    "P": lambda message: json.dumps(message.properties, ensure_ascii=False, default=str),
    "%": lambda message: "%",
}


def writer(form: str, output: str) -> Callable[["Message"], bytes]:
    """What is written of a message, as `written_options` say. Raises UsageError where they contradict each other."""
    if output == "text":
        return formatter(form)
    if click.get_current_context().get_parameter_source("form") is not ParameterSource.DEFAULT:
        raise click.UsageError("--format is for text: leave it or -o json out")
    return lambda message: json.dumps(as_dict(message), default=str).encode() + b"\n"


def as_dict(message: "Message") -> dict[str, Any]:
    """A message as JSON has it: a body that is no text in base 64, under another name."""
    body = _text(message.raw)
    coded = {"body": body} if isinstance(body, str) else {"body_base64": b64encode(body).decode()}
    return {
        "id": message.id, "destination": message.headers["destination"], "kind": message.kind,
        "priority": message.priority, "deliveries": message.delivery_count,
        "timestamp": round(message.timestamp * 1_000), "reply_to": str(message.reply_to or ""),
        "correlation_id": message.correlation_id, "properties": message.properties, **coded,
    }  # fmt: skip


def formatter(form: str) -> Callable[["Message"], bytes]:
    """Bytes of a message by a format. Raises UsageError for a directive that there is not."""
    for _, letter, _ in DIRECTIVE.findall(form):
        if letter and letter not in FIELDS:
            known = " ".join(f"%{each}" for each in FIELDS)
            raise click.UsageError(f"%{letter} means nothing in a format: there are {known} and %{{NAME}}")

    def write(message: "Message") -> bytes:
        out, at = [], 0
        for found in DIRECTIVE.finditer(form):
            out.append(form[at : found.start()].encode())
            at = found.end()
            name, letter, escape = found.groups()
            if escape:
                value: object = ESCAPES[escape]
            elif letter:
                value = FIELDS[letter](message)
            else:
                value = message.properties.get(name, message.headers.get(name, ""))
            out.append(value if isinstance(value, bytes) else str(value).encode())
        out.append(form[at:].encode())
        return b"".join(out)

    return write
