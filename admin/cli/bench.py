"""`mom bench`: what a bus costs on this machine, beside what its disk and its CPU cost."""

from typing import Any

import click

from mombroker.admin.cli import bench_bus, bench_clients, bench_storms
from mombroker.admin.cli.group import Group


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Measure: pingpong, hop, desk, table, commit, recover, orderings, domain, loop, stomp, growth, order, group, replicas, catchup, chaos, failover, peers.

    Without a command all but `domain` and the last seven run, in short. Beside each figure stand two yardsticks of the same round:
    f_ms, the time that the disk takes to make a small record durable, and c_us, the CPU time that Python takes to make
    a small object (which grows while others use the machine). Columns that end in _f and _c are ratios to them.
    Figures are medians of rounds in which the cases take turns. The first line, on stderr, says which Python this is,
    and how it was built.

    \b
    Example:
      mom bench
      mom bench hop --rounds 9
    """  # noqa: E501
    from mombroker.admin.bench.figures import python

    click.echo(f"python: {python()}", err=True)
    if ctx.invoked_subcommand is None:
        for title, command, short in SHORT:
            click.echo(title)
            ctx.invoke(command, **short)
            click.echo()


for _command in (
    bench_bus.pingpong,
    bench_bus.hop,
    bench_bus.desk,
    bench_bus.table,
    bench_bus.commit,
    bench_bus.recover,
    bench_bus.orderings,
    bench_bus.domain,
    bench_bus.order,
    bench_bus.group,
    bench_bus.loop,
    bench_clients.stomp,
    bench_clients.peers,
    bench_clients.growth,
    bench_storms.chaos,
    bench_storms.failover,
    bench_clients.replicas,
    bench_clients.catchup,
):
    bench.add_command(_command)

COMMON: dict[str, Any] = {"folder": None, "output": "table", "columns": ""}
SHORT: list[tuple[str, click.Command, dict[str, Any]]] = [
    ("commit", bench_bus.commit, {"sizes": [1, 64, 512], "size": 100, "commits": 50, "rounds": 3, **COMMON}),
    (
        "hop",
        bench_bus.hop,
        {"messages": 10_000, "windows": [512], "size": 100, "ordering": "matrix", "rounds": 3, **COMMON},
    ),
    ("desk", bench_bus.desk, {"messages": 10_000, "sizes": [100], "rounds": 3, **COMMON}),
    ("table", bench_bus.table, {"rows": 50_000, "turns": 10_000, "window": 512, "rounds": 3, **COMMON}),
    (
        "pingpong",
        bench_bus.pingpong,
        {
            "servers": [2, 20], "layouts": ["flat", "bus"], "clocks": ["ours"], "rounds": 20, "passes": 1,
            "table": None, "png": None, **COMMON,
        },
    ),
    (
        "stomp",
        bench_clients.stomp,
        {
            "urls": (), "pids": (), "kinds": ["flow"], "messages": 20_000, "windows": [1, 512], "sizes": [100],
            "ack": "client-individual", "volatile": False, "producers": 1, "consumers": 1, "queues": 1,
            "prefetch": 1_000, "rounds": 3, **COMMON,
        },
    ),
    (
        "growth",
        bench_clients.growth,
        {
            "destinations": [1, 1_000], "selectors": [1, 100], "connections": [0, 100], "backlog": [10_000, 50_000],
            "curves": ["destinations", "selectors", "connections", "backlog"], "messages": 10_000, "window": 512,
            "rounds": 3, **COMMON,
        },
    ),
    ("recover", bench_bus.recover, {"queued": 100_000, "servers": 50, "size": 100, "rounds": 1, **COMMON}),
    (
        "orderings",
        bench_bus.orderings,
        {
            "names": "", "sizes": [10], "patterns": ["mixed"], "copies": 50, "rounds": 1, "output": "table",
            "columns": "",
        },
    ),
    ("loop", bench_bus.loop, {"waiting": [1, 1000], "events": 300_000, "rounds": 3, "output": "table", "columns": ""}),
]  # fmt: skip
