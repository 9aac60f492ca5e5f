"""docs/tables.md: the verbs of operators' requests, metrics, and the keys of table `meta`, as the code has them."""

import json
from collections.abc import Iterable

from mombroker import agents
from mombroker.broker.attach import attach
from mombroker.core import meta
from mombroker.core.requests import Argument, Verb, verbs_of
from mombroker.core.server import AgentServer
from mombroker.core.topology import Server, Topology
from mombroker.gateway.web import metrics
from mombroker.net.replicas.verbs import ReplicaVerbs
from mombroker.net.verbs import ProcessVerbs
from mombroker.store.memory import MemoryStore

HEAD = """# Tables

Made from the code by `python -m mombroker.admin.cli.reference`; do not edit. For contributors, and for programs that
ask a server without `mom`.

## Verbs

What may be asked on the port of a server by whoever has its token: `AdminClient.request(verb, **arguments)` of
`mombroker.net.adminclient` in Python, `[number, verb, {argument: value}]` in MessagePack on the wire. The answer is a
table, or a sentence why not; what a verb changes is durable by then. An argument in brackets may be left out, and is
then what stands behind `=`, or nothing. *Later*: the answer waits for the server that decides names and policies. Long
lists come in pages: `after` of an answer, if it is not empty, is where the next one begins.

| verb | arguments | | who may | |
|---|---|---|---|---|
"""
METRICS = """
## Metrics

What `/metrics` of the HTTP port tells ([observe.md](observe.md#metrics)), in the order of its text. Each sample has the
label `server`.

| metric | type | labels | |
|---|---|---|---|
"""
LABELS = {metrics.DOMAIN: "`domain`", metrics.LINK: "`domain`, `peer`", metrics.DESTINATION: "`destination`"}
META = """
## Keys of table `meta`

What a store says beside its other tables. A key that ends in a colon begins a row for each of several things. What is
*everywhere* is the same on all servers.

| key | form | | written by |
|---|---|---|---|
"""


def document() -> str:
    rows = [
        f"| `{key.name}` | {key.form} | {key.says}{' (everywhere)' if key.replicated else ''} | `{key.owner}` |"
        for key in meta.KEYS
    ]
    tables = [(HEAD, map(_row, verbs())), (METRICS, map(_metric, metrics.METRICS)), (META, rows)]
    return "".join(head + "\n".join(lines) + "\n" for head, lines in tables)


def _metric(metric: metrics.Metric) -> str:
    labels = next((said for group, said in LABELS.items() if metric in group), "")
    if metric is metrics.INFO:
        labels = "`version`"
    return f"| `{metrics.full(metric)}` | {metric.type} | {labels} | {metric.help} |"


def verbs() -> Iterable[Verb]:
    """All verbs that there are: of a server in memory, of the process, and of replicas."""
    topology = Topology("reference", servers={"a": Server("a", "127.0.0.1", 1)})
    server = AgentServer(topology, "a", MemoryStore(topology, "a", "a"), agents.program(topology), attach, 1)
    others = *verbs_of(ProcessVerbs), *verbs_of(ReplicaVerbs)
    return sorted([*server.requests.verbs.values(), *others], key=lambda verb: verb.name)


def _row(verb: Verb) -> str:
    arguments = ", ".join(map(_argument, verb.arguments.values()))
    kind = "changes, later" if verb.later else "changes" if verb.changes else "reads"
    return f"| `{verb.name}` | {arguments} | {kind} | {verb.may} | {verb.does} |"


def _argument(argument: Argument) -> str:
    shown = f"`{argument.name}` {argument.kind.says}"
    default = "" if argument.default in (None, "") else f" = {json.dumps(argument.default)}"
    return shown if argument.needed else f"[{shown}{default}]"
