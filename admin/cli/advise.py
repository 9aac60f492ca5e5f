"""`mom topology advise`: domains that fit the traffic that a log shows."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mombroker.admin.analysis import extra
from mombroker.admin.cli import options
from mombroker.admin.cli.analyze import MASTER, MEMORY, SINCE, UNTIL, Source, records
from mombroker.admin.cli.output import Target, echo_json, form_option, new_topology, show, write
from mombroker.admin.topology.costs import DIRECT, SAMPLE
from mombroker.core.errors import MomError
from mombroker.core.topology import listed

if TYPE_CHECKING:
    from mombroker.admin.topology.advise import Advice


@click.command()
@options.file_option
@click.option(
    "--log", "sources", type=Source(), multiple=True,
    help="An export, or stores; several may be named, as of machines by themselves. [default: those of FILE]",
)  # fmt: skip
@click.option("--max-domain", type=click.IntRange(2), help="Servers of a domain, at most. [default: any number]")
@click.option(
    "--back-ends", default=",".join(DIRECT), show_default=True, help="Back ends that a domain may have, with commas."
)
@click.option(
    "--packet", type=options.Number(0),
    help="What one more packet weighs, in control bytes: the more, the fewer hops. [default: as logged]",
)  # fmt: skip
@click.option("--growth", type=options.Number(1), default=2.0, show_default=True, help="Times the traffic, forecast.")
@click.option(
    "--messages",
    type=click.IntRange(1),
    default=SAMPLE,
    show_default=True,
    help="Played on each topology; of a longer log a sample of half as many, twice, and the second time counts.",
)
@click.option("--replay", is_flag=True, help="Play them through each whole topology, too, side by side on Spark.")
@click.option(
    "--write", "--out", "out", type=Target("toml", new=True),
    help="Write the proposed topology file here, for `mom topology plan`.",
)  # fmt: skip
@click.option(
    "--html", type=Target("html", "htm"), help="Write the advice as one page: both topologies side by side, the front."
)
@click.option("--pick", type=click.IntRange(1), help="Write this number of the front in place of what is proposed.")
@SINCE
@UNTIL
@MASTER
@MEMORY
@form_option("table")
def advise(
    file: Path,
    sources: tuple[str | Path, ...],
    max_domain: int | None,
    back_ends: str,
    packet: float | None,
    growth: float,
    replay: bool,
    messages: int,
    out: Path | None,
    html: Path | None,
    pick: int | None,
    since: datetime | None,
    until: datetime | None,
    master: str,
    memory: str,
    output: str,
) -> None:
    """Propose domains that fit the traffic, and a back end for each.

    Who talks to whom is read from the log. Compared are the topology of FILE, one domain for all, √N domains of √N
    servers on a backbone, and the proposal: what a message costs in each by the model, which plays each domain by
    itself, and by --replay also with all domains and routers together. The front has what is better than the proposal
    in control bytes, packets, rows on disk or delay, and worse in another one: --pick one of it if your prices are
    others. Nothing is changed: --write makes a file, of which `mom topology plan` says what it takes. Messages of
    servers that FILE has not are left out.

    \b
    Example:
      mom topology advise bus.toml
      mom topology advise bus.toml --log exported --since 2026-03-01
      mom topology advise bus.toml --log paris/exported --log lyon/exported
      mom topology advise bus.toml --log exported --max-domain 12 --replay --write better.toml
      mom topology advise bus.toml --pick 2 --write leaner.toml
    """
    from mombroker.admin.topology import advise as advising

    needed = f"it says which servers and domains the log in {listed([*map(str, sources)])} is of" if sources else ""
    report, topology = extra("analysis.report"), options.load(file, needed)
    chosen = [name.strip() for name in back_ends.split(",") if name.strip()]
    advising.check(topology, chosen)
    with records(sources or [file], master, memory, since, until) as log:
        load = report.load(log, messages)
        advice = advising.advise(topology, load, chosen, max_domain or 0, packet, growth)
        if pick and pick > len(advice.front):
            raise MomError(f"there is no number {pick}: the front has 1 to {len(advice.front)}")
        if replay:
            advising.replay_all(advice, load, log.sparkSession)
    if out:
        new_topology(proposal(advice, options.found(file).parent, out.parent, pick or 0), out)
    record = advice.as_dict()
    if html:
        write(html, extra("analysis.page").advised(record, topology.name))
    if output == "json":
        echo_json(record)
        return
    show(record["options"], output, "")
    titles = {
        "front": "the front: each is best in something, none in all",
        "forecast": "by second, now and with more of the same traffic",
        "model": "the model of the current topology against the log",
    }
    for name, title in titles.items():
        if record[name]:
            click.echo(f"\n{title}")
            show(record[name], output, "")
    click.echo(f"\n{record['verdict']}")
    for line in [*record["changes"], *record["remarks"]]:
        click.echo(f"- {line}")


def proposal(advice: "Advice", old: Path, new: Path, pick: int = 0) -> str:
    """The topology file of the proposal, or of number `pick` of the front, to lie in the folder `new`. In that of the
    old file, relative paths stay so; in another they would lead elsewhere, as would those relative to the new one once
    it is put in the old one's place.
    """
    from mombroker.admin.topology import words
    from mombroker.admin.topology.candidates import CURRENT, PROPOSED
    from mombroker.net import config

    current, made = advice.options[CURRENT], advice.front[pick - 1] if pick else advice.options[PROPOSED]
    remarks = [advice.verdict(), *advice.changes]
    if pick:
        remarks = [f"number {pick}: {words.figures(current.cost, made.cost)}"]
        remarks += words.changes(current.topology, made.topology)
    base = old.absolute() if old.resolve() == new.resolve() else None
    return config.dumps(replace(made.topology, checked=True), base, remarks)
