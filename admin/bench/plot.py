"""The figures of paper 004 §6, drawn from the rows of a ping-pong."""

from collections.abc import Sequence
from pathlib import Path

from mombroker.admin.bench.figures import Row
from mombroker.core.errors import MomError

PANELS = (
    ("Figure 8: remote unicast without domains", "remote", lambda layout: layout == "flat"),
    ("Figure 9: broadcast without domains", "broadcast", lambda layout: layout == "flat"),
    ("Figure 11: remote unicast with domains", "remote", lambda layout: layout != "flat"),
    ("Figure 12: with and without domains", "remote", lambda layout: True),
)


def draw(file: Path, rows: Sequence[Row]) -> None:
    """Raises MomError where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise MomError("matplotlib is not installed: pip install 'mombroker[plots]', or leave out --png") from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(12, 9))
    for panel, (title, kind, wanted) in zip(axes.flat, PANELS, strict=True):
        for (layout, clock), points in lines(rows, kind).items():
            if wanted(layout):
                style = "-o" if clock == "ours" else "--x"
                panel.plot(*zip(*points, strict=True), style, label=f"{layout}, clock: {clock}")
        panel.set(title=title, xlabel="servers", ylabel="round trip, ms", ylim=(0, None))
        if panel.lines:
            panel.legend()
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)


def lines(rows: Sequence[Row], kind: str) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """(servers, ms) of each layout and clock, by growing number of servers."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in sorted(rows, key=lambda row: row["servers"]):
        if row["kind"] == kind:
            found.setdefault((row["layout"], row["clock"]), []).append((row["servers"], row["rtt_ms"]))
    return found
