"""Every figure of every paper has its axes, all its curves, and a legend that names them."""

import json
from pathlib import Path

import pytest

from mombroker.lab.papers import plot, summary, sweep
from mombroker.lab.papers.base import Table, means

pytest.importorskip("matplotlib")

FULL = Path(__file__).parents[3] / "docs" / "papers" / "full.json"
OVERLAY = ["Overlay", "Timestamp, unicasts", "Timestamp, multicast"]
DAISY = ["flat", "daisy"]
KS = [f"{setting} {core}" for setting in ("S1", "S2", "S3", "S4") for core in ("KS", "KS'")]
SIZES = ["S, null", "M, 1k", "L, 7k"]
TRIP, STAMPS = "round trip in the model, ms", "bytes of this bus's stamps a round trip"
RATE, PERCENT = "messages a second of each process", "% of n² integers (RST)"
LAYOUTS = [f"{layout}{kind}" for layout in ("flat", "bus", "daisy", "tree") for kind in ("", ", to all")]

# The paper, its figures: what stands at the x axis and at each y axis (log: by powers of ten), and the curves.
DRAWN = [
    ("overlay", "3 4 5", "nodes", ["mean delay, ms (log)", "maximum delay, ms (log)"], OVERLAY),
    ("overlay", "6 7 8", "nodes", ["fragments sent (log)", "bytes sent (log)"], OVERLAY),
    ("overlay", "9 10 11", "nodes", ["fragments on physical links (log)"], OVERLAY),
    ("overlay", "12 13 14", "nodes", ["messages held by a node, mean", "messages held by a node, maximum"], OVERLAY),
    ("overlay", "15 16 17", "nodes",
     ["fragments queued on a link, mean (log)", "fragments queued on a link, maximum (log)",
      "bytes queued on a link, mean (log)", "bytes queued on a link, maximum (log)"],
     OVERLAY),
    ("overlay", "sustained", "nodes", ["messages held by a node, mean", "messages held by a node, maximum"],
     OVERLAY[2:]),
    ("daisy", "6", RATE, ["mean delay over the campus, ms", "mean delay over three hops, ms"], DAISY),
    ("daisy", "7", RATE, ["kB in each process, mean"], DAISY),
    ("daisy", "8", RATE, ["mean delay until the sender knows, ms"], DAISY),
    ("daisy", "9", RATE, ["kB in each process, mean"], DAISY),
    ("ks", "3", "n (log)", [PERCENT, f"{PERCENT} (log)"], KS),
    ("ks", "4", "MTT, ms (log)", [PERCENT], KS),
    ("ks", "5", "MIMT, ms (log)", [PERCENT], KS),
    ("ks", "6", "M/T", [PERCENT], KS),
    ("ks", "7", "|Dests|/n", [PERCENT], KS),
    ("ks", "8", "B/T", [PERCENT], KS),
    ("groups", "II-rpc", "destinations", ["ms until the last reply"], SIZES),
    ("groups", "II-stream", "destinations", ["messages a second", "kB a second to all, in all"], SIZES),
    ("groups", "III-rpc", "destinations", ["ms until the last reply"], SIZES),
    ("groups", "III-stream", "destinations", ["messages a second", "kB a second to each"], SIZES),
    ("groups", "7", "destinations", ["ms until the last reply"], ["CBCAST, 1k", "ABCAST, 1k"]),
    ("groups", "order", "put in order at a time", ["CBCASTs of an ABCAST"],
     ["senders in turn, the token stays", "one sender, the token goes there"]),
    ("groups", "flush", "members of the new view", ["flush messages", "with those that tell the view"],
     ["to each other", "through a coordinator"]),
    ("groups", "I", "clients, or parts of a hierarchy", ["most fields of a multicast"],
     ["peers", "one group for all clients", "a group for each client", "diffusion", "a hierarchy"]),
    ("groups", "conservative", "chance to send in the same group again", ["ms from send to delivery"],
     ["all vectors", "the conservative rule"]),
    ("groups", "compression", "members of the group", ["% of all fields", "bytes of control"],
     ["one at a time", "in bursts of 10"]),
    ("groups", "V", "bytes of a message", ["µs of CPU a message, in the core"], ["a pair causal", "a pair FIFO"]),
    ("domains", "8", "servers", [TRIP, STAMPS], ["flat", "local"]),
    ("domains", "9", "servers", [TRIP, STAMPS], ["flat"]),
    ("domains", "11", "servers", [TRIP, STAMPS], ["bus"]),
    ("domains", "12", "servers (log)", [f"{TRIP} (log)", f"{STAMPS} (log)"], LAYOUTS),
]  # fmt: skip
FIGURES = [(paper, figure, *what) for paper, figures, *what in DRAWN for figure in figures.split()]
NOTHING_THERE = {
    ("groups", stream, 1): {"S, null"} for stream in ("II-stream", "III-stream")
}  # messages without a byte have no kB a second


def rows(points, figure):
    """Of each run a value in each column, another one on each curve."""
    settings = list(dict.fromkeys(point.setting for point in points))
    columns = [column for panel in figure.panels for column in panel.lines]
    for point in points:
        values = {column: 1.0 + settings.index(point.setting) + 10 * at for at, column in enumerate(columns)}
        yield {"figure": point.figure, "setting": point.setting, "x": point.x, **point.params, **values}


def named(label, scale):
    return f"{label} (log)" if scale == "log" else label


@pytest.mark.parametrize(("paper", "name", "across", "up", "curves"), FIGURES, ids=[" ".join(f[:2]) for f in FIGURES])
def test_a_figure_shows_its_axes_every_curve_and_a_legend(paper, name, across, up, curves):
    chosen = sweep.load(paper)
    points = chosen.points(name, False, (1, 2), {})
    made = plot.drawn(name, chosen.figures[name], Table(rows(points, chosen.figures[name])), "two runs a point")
    assert [named(axes.get_xlabel(), axes.get_xscale()) for axes in made.axes] == [across] * len(up)
    assert [named(axes.get_ylabel(), axes.get_yscale()) for axes in made.axes] == up
    xs = {float(point.x) for point in points if point.figure == name}
    for at, axes in enumerate(made.axes):
        shown = {box.get_label(): box.lines[0] for box in axes.containers}
        assert list(shown) == [curve for curve in curves if curve not in NOTHING_THERE.get((paper, name, at), ())]
        looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in shown.values()}
        assert len(looks) == len(shown), "two curves look the same"
        assert {x for line in shown.values() for x in line.get_xdata()} == xs
    (legend,) = made.legends
    assert [text.get_text() for text in legend.get_texts()] == curves
    (told,) = (text for text in made.texts if text.get_fontsize() == plot.SMALL)
    assert [f"{setting}: " in told.get_text() for setting in ("S1", "S4")] == [paper == "ks"] * 2
    assert chosen.figures[name].title in made.get_suptitle() and "two runs a point" in made.get_suptitle()


def test_the_points_that_were_run_are_labelled():
    """All of a few sizes; of many those that are not too near to each other, by what the axis shows."""
    points = [point for point in sweep.load("ks").points("3", False, (1, 2), {}) if point.figure == "3"]
    figure = sweep.load("ks").figures["3"]
    axes, other = plot.drawn("3", figure, Table(rows(points, figure)), "").axes
    for each in (axes, other):
        assert {float(x) for x in each.get_xticks()} == {point.x for point in points} >= {10, 15, 20, 30}
    assert [axes.xaxis.get_major_formatter()(x) for x in (15, 6000)] == ["15", "6,000"]
    assert plot._ticks([1, 1.1, 10, 50, 95, 100], log=True) == [1, 10, 50, 100]
    full = {point.x for point in sweep.load("ks").points("3", True, (1,), {}) if point.figure == "3"}
    assert plot._ticks(full, log=True) == [10, 15, 20, 30, 50, 70, 100, 200, 350, 500]
    assert plot._ticks([0, 0.03, 0.1, 0.48, 0.5, 0.97, 1]) == [0, 0.1, 0.5, 1]


def written(paper, name):
    """The means of the full runs, as if each were a run."""
    found = {}
    for column, curves in json.loads(FULL.read_text())[paper]["values"][name].items():
        for setting, points in curves.items():
            for x, (mean, *_) in points.items():
                row = found.setdefault((setting, x), {"figure": name, "setting": setting, "x": float(x)})
                row[column] = mean
    return found.values()


@pytest.mark.parametrize(("paper", "name"), [("domains", "12"), ("overlay", "3"), ("ks", "3")])
def test_no_two_numbers_at_an_axis_touch(paper, name):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    chosen = sweep.load(paper)
    made = plot.drawn(name, chosen.figures[name], Table(written(paper, name)), "full runs")
    FigureCanvasAgg(made).draw()
    for axes in made.axes:
        for labels, low, high in ((axes.get_xticklabels(), "x0", "x1"), (axes.get_yticklabels(), "y0", "y1")):
            inner = axes.get_window_extent()
            boxes = [label.get_window_extent() for label in labels if label.get_text()]
            middles = [(getattr(box, low) + getattr(box, high)) / 2 for box in boxes]
            span = getattr(inner, low), getattr(inner, high)
            shown = [box for box, middle in zip(boxes, middles, strict=True) if span[0] - 1 <= middle <= span[1] + 1]
            shown.sort(key=lambda box: getattr(box, low))
            for before, after in zip(shown, shown[1:], strict=False):
                assert getattr(after, low) - getattr(before, high) >= (5 if low == "x0" else 0)


def test_a_figure_that_is_drawn_twice_has_its_values_once():
    chosen = sweep.load("ks")
    figure = chosen.figures["3"]
    points = chosen.points("3", False, (1, 2), {})
    table = Table(rows(points, figure))
    assert figure.columns == ["ks", "ks_bitmap"] and len(figure.panels) == 2
    told = means(table, "3", figure.columns)
    assert len(told) == len({(row["setting"], row["x"], row["column"]) for row in told})
    kept = summary.values(chosen, table, ["3"])["3"]
    assert sum(len(curve) for column in kept.values() for curve in column.values()) == len(told)


def test_what_the_settings_are_is_wrapped_between_them():
    pieces = ["in ms", "S1: MTT 50, n 15", "S2: MTT 400, n 15"]
    assert plot._wrapped(pieces, 60) == ["in ms; S1: MTT 50, n 15; S2: MTT 400, n 15"]
    assert plot._wrapped(pieces, 30) == ["in ms; S1: MTT 50, n 15;", "S2: MTT 400, n 15"]
    assert plot._wrapped([], 30) == []


def test_no_figure_is_left_out():
    assert {(paper, figure) for paper, figure, *_ in FIGURES} == {
        (name, figure) for name in sweep.PAPERS for figure in sweep.load(name).figures
    }
