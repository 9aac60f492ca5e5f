"""docs/topology.md, made from the tables of keys that the topology file is read by (net/config.py)."""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields

from mombroker import ordering
from mombroker.broker.policy import Policy
from mombroker.core.limits import Limits
from mombroker.net import config
from mombroker.net.node import LOG_BYTES, LOG_DAYS

HEAD = """# The topology file

Made from the code that reads it, by `python -m mombroker.admin.cli.reference`; do not edit.

A TOML file says which servers a bus has, which domains order their messages, and how each server behaves. All servers
get the same file. `mom topology validate FILE` tells all that is wrong with one, with line, key and remedy;
`mom topology generate` makes one; [etc/two-sites.toml](../etc/two-sites.toml) and
[etc/mixed.toml](../etc/mixed.toml) are examples. Paths are relative to the folder of the file. A server reads the file
when it starts, and at SIGHUP its certificates, `[limits]` and `[log]` anew.

A bus that has run goes by the topology in its stores. Of a file it takes then what is of one server alone: `[limits]`,
`[log]`, `secret_file`, and all of its own `[servers.NAME]`. What the file says of the rest, `name`, `registry`,
`allow`, `listen` of the others, `[domains]`, `[[agents]]`, `[[policies]]` and `[[permissions]]`, comes into force by
`mom topology apply` ([operate.md](operate.md#the-topology-of-a-bus)).

```toml
[bus]
name = "demo"
registry = "paris"

[servers.paris]
listen = "127.0.0.1:16300"
stomp = "127.0.0.1:61613"

[servers.lyon]
listen = "127.0.0.1:16301"

[domains.all]
servers = ["paris", "lyon"]
```

Keys that must be there are **bold**.
"""

PERMISSIONS = """What users and roles may do with destinations; [security.md](security.md#permissions) tells what each
word means. `user` or `role`, `match`, and `may` or `deny` or both:

```toml
[[permissions]]
role = "clerk"
match = "queue:orders*"
may = ["send", "create"]
```"""

# What each key means; a test holds the keys against those of net/config.py.
MEANINGS: Mapping[str, Mapping[str, str]] = {
    "": {
        "revision": "The revision of the bus that this file was made from. `mom topology export` and `mom server join` "
        "write it, and `mom topology advise --write` that of its file. While another one is in force the file is "
        "refused by `mom topology plan`, `apply` and `adopt`, unless it changes nothing: it would take back what "
        "others have changed. Once the file is applied they write the new one here. Without it nothing is compared. "
        "Servers do not read it.",
    },
    "bus": {
        "name": "Name of the bus. Servers of another bus are refused.",
        "ca": "PEM file of those that sign the certificates of servers. With it links use TLS, and each server needs "
        "`certificate`; [security.md](security.md#tls-between-servers).",
        "registry": "The server that decides names and policies; known ones work while it is down. Needed with two "
        "servers or more.",
        "secret_file": "What servers prove to each other that they have. Needed as soon as a server listens on an "
        "address that other machines reach; mode 600.",
        "allow": "Modules, and all within them, whose agent classes may be deployed while the bus runs, beside those "
        "that `[[agents]]` names, which need no entry here. Without it only these.",
    },
    "servers": {
        "listen": "HOST:PORT where the other servers, and `mom`, reach it.",
        "stomp": "HOST:PORT where STOMP clients reach it. Without `stomp` and `stomp_tls` it takes none.",
        "stomp_tls": "HOST:PORT for STOMP clients by TLS; needs `certificate`.",
        "amqp": "HOST:PORT for clients of AMQP 1.0, as Qpid JMS ([amqp.md](amqp.md)).",
        "amqp_tls": "HOST:PORT for these by TLS; needs `certificate`.",
        "http": "HOST:PORT of metrics, health, the API, the console and STOMP over WebSocket "
        "([observe.md](observe.md)).",
        "http_tls": "HOST:PORT of the same by TLS; needs `certificate`.",
        "http_origins": "Web pages that may open a WebSocket to it, beside its own: `https://HOST` or "
        "`https://HOST:PORT`.",
        "certificate": "PEM file of the server's certificate, and of those that signed it.",
        "client_ca": "PEM file of those that sign certificates of clients by TLS: a client that shows one is "
        "the user that its common name says, and needs no passcode.",
        "private_key": "PEM file of its key. Without it the key is in the certificate's file.",
        "anonymous": "`true`: clients of the same machine need no user. Only with loopback addresses.",
        "type_headers": "`true`: selectors take headers like `5`, `2.5` and `true` for numbers and booleans.",
        "hide_version": "`true`: clients are not told what they are connected to.",
        "data": "Folder of its store, its token and its log. Without it `var/NAME`.",
        "redirect": "`true`: replicas that do not lead answer clients of `stomp` and `stomp_tls` with an ERROR that "
        "says who does, in its message and in header `leader`, and those of `amqp` and `amqp_tls` with "
        "`amqp:connection:redirect`. Without it these ports are closed, so that lists of addresses work.",
        "replicas": "Processes on several machines that keep the same: what is durable is on the disks of a majority "
        "([replication.md](replication.md)). Each has its own `listen`, `data` and ports of clients.",
    },
    "replicas": {
        "name": "Name of the replica within its server: `mom` calls it SERVER/REPLICA.",
        "listen": "HOST:PORT where the other replicas, the other servers, and `mom`, reach it.",
        "stomp": "HOST:PORT where STOMP clients reach it while it leads.",
        "stomp_tls": "The same by TLS.",
        "amqp": "HOST:PORT where clients of AMQP 1.0 reach it while it leads.",
        "amqp_tls": "The same by TLS.",
        "http": "HOST:PORT of its HTTP port while it leads.",
        "http_tls": "The same by TLS.",
        "certificate": "PEM file of its certificate, which names the server. Without it that of the server.",
        "private_key": "PEM file of the key of its certificate.",
        "data": "Folder of its store, its token and its log. Without it `var/SERVER-NAME`.",
        "witness": "`true`: it votes and keeps the end of the log, and no messages; it serves no clients.",
    },
    "domains": {
        "servers": "Its members, two or more. A server in two domains routes between them; the domains form a tree.",
        "ordering": "Back end, or a table of `backend` and its options, see below. Without it `fifo` between two "
        "servers, else `matrix`.",
    },
    "agents": {
        "name": "The agent's name on the bus.",
        "server": "Where it lives.",
        "class": "Its class, as MODULE:CLASS. The module may lie beside the file.",
        "fields": "First values of its fields. They count when the agent is made, at the first start.",
    },
    "log": {
        "enabled": "`false`: servers keep no record of what messages did; `mom check`, `analyze` and `log` then have "
        "nothing to read.",
        "max_bytes": f"Size of each server's log: the oldest go. Without it {LOG_BYTES:,}, or less for `max_store`.",
        "max_age_days": f"Records that are older go. Without it {LOG_DAYS}.",
    },
}
TABLES: Mapping[str, tuple[str, Mapping[str, tuple[type, str]]]] = {
    "": ("before the first table", config.ABOVE),
    "bus": ("[bus]", config.BUS),
    "servers": ("[servers.NAME]", config.SERVER),
    "replicas": ("replicas = [{ ... }] of [servers.NAME]", config.REPLICA),
    "domains": ("[domains.NAME]", config.DOMAIN),
    "agents": ("[[agents]]", config.AGENT),
    "log": ("[log]", config.LOG),
}
TYPES = {
    str: "text",
    bool: "true or false",
    int: "whole number",
    list: "list of texts",
    dict: "table",
    object: "text or table",
}
COMMENT = re.compile(r"^    (\w+): [^#]*# (.*)$", re.M)


def document() -> str:
    parts = [HEAD]
    for name, (header, known) in TABLES.items():
        parts.append(f"## `{header}`\n" if name else f"## {header.capitalize()}\n")
        rows = [
            (_key(key, example), _type(key, kind), f"`{example.lstrip('!')}`", MEANINGS[name].get(key, ""))
            for key, (kind, example) in known.items()
        ]
        parts.append(_table(("key", "value", "example", "meaning"), rows))
        if name == "domains":
            parts.append(_back_ends())
    about = "Settings of destinations; [stomp.md](stomp.md#policies) tells what they do."
    parts.append(f"## `[limits]`\n\nBounds of each server. Times are in nanoseconds, sizes in bytes.\n\n{_limits()}")
    parts.append(f"## `[[policies]]`\n\n{about}\n\n{_policies()}")
    parts.append(f"## `[[permissions]]`\n\n{PERMISSIONS}\n")
    return "\n".join(parts)


def _type(key: str, kind: type) -> str:
    return "list of tables" if key == "replicas" else TYPES[kind]


def _key(key: str, example: str) -> str:
    return f"**`{key}`**" if example.startswith("!") else f"`{key}`"


def _back_ends() -> str:
    rows = [
        (f"`{name}`", ", ".join(f"`{each}`" for each in ordering.backend(name).options)) for name in _own_back_ends()
    ]
    about = (
        "Back ends and their options; [orderings.md](orderings.md) tells which one to take, and what the options do.\n"
    )
    return f"{about}\n{_table(('back end', 'options'), rows)}"


def _own_back_ends() -> list[str]:
    """Those that come with the broker."""
    return [name for name in ordering.names() if ordering.backend(name).__module__.startswith("mombroker.")]


def _limits() -> str:
    said = dict(COMMENT.findall(inspect.getsource(Limits)))
    rows = [
        (f"`{each.name}`", f"{each.default:,}", _most(each.name), said.get(each.name, "")) for each in fields(Limits)
    ]
    return _table(("key", "default", "most", "meaning"), rows)


def _most(name: str) -> str:
    return f"{config.MOST[name]:,}" if name in config.MOST else ""


def _policies() -> str:
    rows = [
        (f"`{each.name}`", TYPES.get(type(each.default), "number"), f"`{_toml(each.default)}`")
        for each in fields(Policy)
    ]
    return _table(("key", "value", "default"), [("**`match`**", "text", ""), *rows[1:]])


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)) + "\n"
