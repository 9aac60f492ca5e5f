"""A blocking client in the manner of Jakarta Messaging's simplified API, for any server of the bus. See docs/jms.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mombroker.jms import checks
from mombroker.jms.connection import PATIENCE_S, Connection, log_fault
from mombroker.jms.consumer import Browser, Consumer
from mombroker.jms.context import Context, mode
from mombroker.jms.destinations import Agent, Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from mombroker.jms.errors import (
    ConnectionLost,
    IllegalState,
    InvalidDestination,
    InvalidSelector,
    InvalidUrl,
    JmsError,
    LoginRefused,
    MessageFormat,
    Refused,
    RolledBack,
    TimedOut,
)
from mombroker.jms.machine import Machine, Settings
from mombroker.jms.messages import Message
from mombroker.jms.producer import Options, Pending, Producer
from mombroker.jms.transport import Transport
from mombroker.jms.url import Url, parse

__all__ = [
    "Agent",
    "Browser",
    "ConnectionLost",
    "Consumer",
    "Context",
    "Destination",
    "IllegalState",
    "InvalidDestination",
    "InvalidSelector",
    "InvalidUrl",
    "JmsError",
    "LoginRefused",
    "Message",
    "MessageFormat",
    "Options",
    "Pending",
    "Producer",
    "Queue",
    "Refused",
    "RolledBack",
    "TemporaryQueue",
    "TemporaryTopic",
    "TimedOut",
    "Topic",
    "connect",
]

DAY_S = 86_400


def connect(
    url: str | Iterable[str] = "stomp://localhost:61613",
    *,
    ack: str = "auto",
    client_id: str = "",
    exclusive: bool = False,
    heartbeat: float = 10.0,
    reconnect: float = 60.0,
    on_error: Callable[[JmsError], None] = log_fault,
) -> Context:
    """A context on a new connection to the first server of `url` that can be reached.

    url         stomp://USER:PASSCODE@HOST:PORT, stomps:// for TLS; several, with commas between, to fail over to
    client_id   names this client, for durable subscriptions
    exclusive   nobody else may be connected by that name: LoginRefused
    heartbeat   seconds between signs of life; 0: none
    reconnect   seconds for which it tries to get a lost connection back
    on_error    called for what goes wrong while nobody waits for it, in any thread; default: a line in the log
    Raises InvalidUrl, IllegalState, LoginRefused, ConnectionLost.
    """
    urls, settings = settled(url, ack, client_id, exclusive, heartbeat, reconnect, on_error)
    machine = Machine(settings)
    connection = Connection(machine, on_error, reconnect + PATIENCE_S)
    transport = Transport(urls, machine, connection.lock, connection.changed, reconnect)
    return opened(connection, transport, ack)


def opened(connection: Connection, transport: Transport, ack: str) -> Context:
    """A context on a connection, once that is made. Raises LoginRefused, ConnectionLost."""
    machine, connection.carrier = connection.machine, transport
    context = Context(connection, ack)
    transport.start()
    with connection.lock:
        connection.lock.wait_for(lambda: machine.up or machine.final is not None)
        if machine.final is not None:
            raise type(machine.final)(str(machine.final))
    return context


def settled(
    url: str | Iterable[str],
    ack: str,
    client_id: str,
    exclusive: bool,
    heartbeat: float,
    reconnect: float,
    on_error: Callable[[JmsError], None],
) -> tuple[list[Url], Settings]:
    """What the arguments of `connect` say. Raises InvalidUrl, IllegalState."""
    checks.seconds("heartbeat", heartbeat)
    checks.seconds("reconnect", reconnect)
    checks.function("on_error", on_error)
    checks.text("client_id", client_id)
    if client_id:
        checks.name("client_id", client_id)
    checks.flag("exclusive", exclusive)
    if exclusive and not client_id:
        raise IllegalState("exclusive needs a client_id, which nobody else may have then")
    mode(ack)
    urls = parse(url)
    for each in urls:
        if each.tls:
            each.trust()
    return urls, Settings(client_id, round(min(heartbeat, DAY_S) * 1_000), exclusive)
