"""Advice on the thirty workloads of `shapes` against an annealing of 45 CPU seconds.

    python -m tests.admin.advice_bar anneal FOLDER [SHAPE...]    what FOLDER lacks; it may be stopped and go on
    python -m tests.admin.advice_bar judge FOLDER [SHAPE...]     a table of the advice against what FOLDER has

The advice is from one domain for all and from √n of √n, under the names of the workload and under three other sets.
"""

import json
import sys
from pathlib import Path
from time import process_time

from mombroker.admin.topology import advise, costs
from mombroker.admin.topology.front import AXES, GAIN
from mombroker.core import layouts
from tests.admin import annealing, shapes

SECONDS = {200.0: 20, 20.0: 20, 2000.0: 5}  # by weight of a packet
RENAMED = 3
MOST = 1.1


def load_of(sends):
    return costs.Load(costs.traffic((send.origin, send.dests) for send in sends), sends)


def built(layout, names):
    return layouts.build(layouts.LAYOUTS[layout](names), servers=names)


def file_of(folder, shape, number, weight):
    return folder / f"{shape}{number}-{weight:.0f}.json"


def anneal(folder, wanted):
    for shape, number, weight in ((*each, weight) for each in wanted for weight in SECONDS):
        file = file_of(folder, shape, number, weight)
        if file.exists():
            continue
        names, sends = shapes.workload(shape, number)
        found = annealing.anneal(built("flat", names), load_of(sends), weight, seconds=SECONDS[weight])
        rows = [
            {
                "axes": {name: of(cost) for name, of in AXES.items()},
                "price": cost.price(weight),
                "domains": [[each.backend, *each.members] for each in topology.domains.values()],
            }
            for topology, cost in found
        ]
        file.with_suffix(".part").write_text(json.dumps(rows, indent=1))
        file.with_suffix(".part").rename(file)
        print(file.name, round(rows[0]["price"], 1), flush=True)


def judge(folder, wanted, layout, renamed):
    """Rows of the table, and what is wrong with them."""
    for shape, number in wanted:
        found = {
            weight: json.loads(file.read_text())
            for weight in SECONDS
            if (file := file_of(folder, shape, number, weight)).exists()
        }
        if not found:
            continue
        names, sends = shapes.workload(shape, number)
        begin = process_time()
        advice = advise.advise(built(layout, names), load_of(sends))
        took = process_time() - begin
        current = advice.options["current"].cost
        rows, wrong = {}, []
        for weight, some in found.items():
            mine = min(each.cost.price(weight) for each in advice.front)
            rows[f"price at {weight:.0f}"] = mine, some[0]["price"]
        others = [one["axes"] for some in found.values() for one in some]
        for name, of in AXES.items():
            rows[name] = min(of(each.cost) for each in advice.front), min(one[name] for one in others)
        wrong += [name for name, (mine, other) in rows.items() if mine > MOST * other]
        for one in others:
            changed = {name: one[name] / of(current) - 1 for name, of in AXES.items() if of(current)}
            if min(changed.values()) <= -GAIN and not advice.changes and not advice.trades:
                wrong.append(f"nothing is said to be gained, but {changed}")
            if min(changed.values()) <= -GAIN and max(changed.values()) <= 0.01 and not advice.changes:
                wrong.append(f"nothing is proposed, but {changed} is better in all")
        for seed in range(renamed):
            order, moved, new = shapes.renamed(names, sends, seed)
            domains = {name: [new[each] for each in some] for name, some in layouts.LAYOUTS[layout](names).items()}
            other = advise.advise(layouts.build(domains, servers=order), load_of(moved))
            if other.verdict() != advice.verdict() or len(other.changes) != len(advice.changes):
                wrong.append(f"under other names: {other.verdict()}")
        kind = "changes" if advice.changes else "trades" if advice.trades else "nothing"
        yield f"{shape}{number}", len(names), kind, len(advice.front), took, rows, wrong


def main(what, folder, *chosen):
    folder = Path(folder)
    folder.mkdir(exist_ok=True, parents=True)
    wanted = [each for each in shapes.ALL if not chosen or each[0] in chosen or f"{each[0]}{each[1]}" in chosen]
    if what == "anneal":
        anneal(folder, sorted(wanted, key=lambda each: each[1]))
        return
    for layout in ("flat", "bus"):
        for name, size, kind, front, took, rows, wrong in judge(folder, wanted, layout, RENAMED):
            cells = [f"{key} {mine:.2f}/{other:.2f}={mine / other:.3f}" for key, (mine, other) in rows.items() if other]
            print(layout, name, size, kind, front, f"{took:.1f}s", " | ".join(cells), flush=True)
            for each in wrong:
                print("  WRONG:", each, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
