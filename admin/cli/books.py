"""`mom analyze trend` and `compare`: from roll-ups of an export, without Spark."""

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from mombroker.admin.analysis import extra
from mombroker.admin.cli import options
from mombroker.admin.cli.output import echo_json, form_option, output_options, show
from mombroker.net.exit_codes import ExitCode

GB = 10**9
HOURS = {"hour": 1, "day": 24, "week": 168}
BRIEF = (
    "start,messages,packets_per_message,control_per_message,wire_bytes,price,rows_per_message,hold_ms,hold_p95_ms,delay_p50_ms,"
    "delay_p95_ms"
)
PLACES = (
    "start,domain,from,to,server,packets,control_bytes,wire_bytes,wire_per_packet,control_pct_of_wire,price,commits,"
    "disk_bytes,hold_ms,hold_p95_ms"
)
PRICE = click.option(
    "--price-per-gb", "price", type=options.Number(min=0),
    help="What a GB costs on a link, in your currency: `price` is that of all bytes that servers wrote to each other.",
)  # fmt: skip
EXPORT = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.argument("export", metavar="DIR", type=EXPORT)
@click.option("--by", type=click.Choice(list(HOURS)), default="day", show_default=True, help="A line for each.")
@click.option("--since", type=options.Time(), help="A full hour, as 2026-03-01T12:00:00, UTC. [default: all]")
@click.option("--until", type=options.Time(), help="Records that were written before. [default: all]")
@click.option(
    "--of", type=click.Choice(["all", "domain", "link", "server"]), default="all", show_default=True,
    help="A line for each of these, too.",
)  # fmt: skip
@PRICE
@output_options
def trend(
    export: Path,
    by: str,
    of: str,
    price: float | None,
    since: datetime | None,
    until: datetime | None,
    output: str,
    columns: str,
) -> None:
    """Tell by the day or hour what ordering has cost.

    DIR is an export. Roll-ups are kept in it, by the hour in which a record was written; they stay when its days are
    deleted, and only what is new is read. No Java is needed.

    \b
    Example:
      mom analyze trend exported
      mom analyze trend exported --of link --price-per-gb 0.02
      mom analyze trend exported --by hour --since 2026-03-01 -o json
    """
    rollup, comparing = extra("analysis.rollup"), extra("analysis.compare")
    rollup.update(export)
    show(
        comparing.trend(rollup.read(export, since, until), HOURS[by], of, price),
        output,
        columns,
        BRIEF if of == "all" else PLACES,
    )


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--alert", "alerts", metavar="RULE", multiple=True,
    help="Exit with 4 if it is so: hold_ms>5 (in B), control_per_message+20% (risen), messages-50% (fallen).",
)  # fmt: skip
@PRICE
@form_option("table")
def compare(a: str, b: str, alerts: tuple[str, ...], price: float | None, output: str) -> None:
    """Tell what has changed from one period to another, and where that comes from.

    A and B are exports, or hours of one: DIR@2026-03-01 is a day, DIR@2026-03-01T12:00 an hour, and
    DIR@2026-03-01..2026-03-08 what is from the first to the last. Roll-ups are read, as by `mom analyze trend`. Exit
    code 4 if an --alert is raised.

    \b
    Example:
      mom analyze compare exported@2026-03-01 exported@2026-03-02
      mom analyze compare before after -o json
      mom analyze compare exported@2026-03-01 exported@2026-03-02 --alert 'control_per_message+20%'
    """
    comparing = extra("analysis.compare")
    rules = [comparing.Alert.of(each) for each in alerts]
    if price is None and any(rule.figure == "price" for rule in rules):
        raise click.UsageError("an alert on the price needs one: name it by --price-per-gb")
    periods = [comparing.Period.of(each) for each in (a, b)]
    found: dict[str, Any] = comparing.compare(*[period.read() for period in periods], price)
    found["alerts"] = comparing.raised(rules, found["figures"])
    if output == "json":
        echo_json(found)
    else:
        for name, rows in found.items():
            if rows:
                click.echo(f"{chr(10) * (name != 'figures')}{name}")
                show(rows, output, "")
    if found["alerts"]:
        said = ", ".join(row["alert"] for row in found["alerts"])
        raise options.Failure(ExitCode.WRONG, f"alert: {said}")
