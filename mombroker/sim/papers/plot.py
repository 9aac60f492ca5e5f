"""A figure of a paper as a picture: the paper's axes, every curve, a legend."""

from pathlib import Path

from mombroker.core.errors import MomError
from mombroker.sim.papers.base import Figure, Table

LINES = ("-o", "--s", ":^", "-.d")  # one for each column
SIZE, DPI = (7.0, 5.0), 110


def draw(path: Path, name: str, figure: Figure, table: Table, note: str) -> None:
    """Raises MomError where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise MomError("matplotlib is not installed, so there is no picture: pip install 'mombroker[plots]'") from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    fig, axes = pyplot.subplots(figsize=SIZE)
    for number, setting in enumerate(table.settings(name)):
        for (column, label), line in zip(figure.lines.items(), LINES, strict=False):
            curve = table.curve(name, setting, column)
            axes.plot([*curve], [*curve.values()], line, color=f"C{number}", markersize=4, label=f"{setting} {label}")
    axes.set(xlabel=figure.x, ylabel=figure.y, ylim=(0, None))
    axes.set_title(f"Figure {name}. {figure.title}\n{note}", fontsize=9)
    if figure.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    else:
        axes.set_xticks(sorted({row["x"] for row in table.rows if row["figure"] == name}))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)
    fig.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=DPI)
    pyplot.close(fig)
