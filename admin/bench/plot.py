"""The figures of paper 004 §6.2, drawn from the rows of a ping-pong."""

from collections.abc import Callable, Sequence
from pathlib import Path

from mombroker.admin.bench.figures import Row
from mombroker.core.errors import MomError
from mombroker.core.layouts import LAYOUTS

PANELS: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("Figure 8: remote unicast without domains", "remote", lambda layout: layout == "flat"),
    ("Figure 9: broadcast without domains", "broadcast", lambda layout: layout == "flat"),
    ("Figure 11: remote unicast with domains", "remote", lambda layout: layout != "flat"),
    ("Figure 12: with and without domains", "remote", lambda layout: True),
)

# The time is the paper's measure; the CPU time of all servers does not feel the disk, nor other work as much.
MEASURES = {"rtt_ms": "round trip, ms", "cpu_ms": "CPU of a round trip, ms"}


def draw(file: Path, rows: Sequence[Row]) -> None:
    """Raises MomError where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise MomError("matplotlib is not installed: pip install 'mombroker[plots]', or leave out --png") from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(MEASURES), len(PANELS), figsize=(6 * len(PANELS), 5 * len(MEASURES)))
    for line, (measure, label) in zip(axes, MEASURES.items(), strict=True):
        for panel, (title, kind, wanted) in zip(line, PANELS, strict=True):
            for (layout, clock), points in lines(rows, kind, measure).items():
                if wanted(layout):
                    style = "-o" if clock == "ours" else "--x"
                    colour = f"C{list(LAYOUTS).index(layout)}"
                    panel.plot(*zip(*points, strict=True), style, color=colour, label=f"{layout}, clock: {clock}")
            panel.set(title=title, xlabel="servers", ylabel=label, ylim=(0, None))
            if panel.lines:
                panel.legend()
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)


def lines(rows: Sequence[Row], kind: str, measure: str) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """(servers, measure) of each layout and clock, by growing number of servers."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in sorted(rows, key=lambda row: row["servers"]):
        if row["kind"] == kind:
            found.setdefault((row["layout"], row["clock"]), []).append((row["servers"], row[measure]))
    return found
