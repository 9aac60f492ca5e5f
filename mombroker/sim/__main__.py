"""`python -m mombroker.sim --seeds A:B` runs the seeds from A up to B and prints one JSON line; exit 1 if one fails."""

import argparse
import json
import sys
from collections import Counter
from time import perf_counter

from rich.console import Console
from rich.progress import Progress

from mombroker.sim.domains import BACKENDS
from mombroker.sim.programs import LOSABLE, PROGRAMS
from mombroker.sim.replicas.node import ReplicatedNode
from mombroker.sim.seeds import AGENTS, Run, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mombroker.sim", description=__doc__)
    parser.add_argument("--seeds", default="0:100", metavar="A:B", help="a range, or a single seed")
    parser.add_argument("--backends", default=",".join(BACKENDS), metavar="X,Y", help="that domains choose from")
    parser.add_argument("--clients", choices=PROGRAMS, default=AGENTS, help="what clients do; else agents are at work")
    parser.add_argument("--relayouts", action="store_true", help="the domains change meanwhile, again and again")
    parser.add_argument("--replicas", action="store_true", help="some servers have replicas, which fail meanwhile")
    parser.add_argument("--losses", action="store_true", help="servers die with their disks: agents or clients go on")
    parser.add_argument("--travels", action="store_true", help="agents move meanwhile, from server to server")
    parser.add_argument("--groups", action="store_true", help="agents join groups, leave them, and cast")
    parser.add_argument("--all", action="store_true", help="go on after a failing seed")
    args = parser.parse_args()
    first, _, last = args.seeds.partition(":")
    try:
        seeds = range(int(first), int(last or int(first) + 1))
    except ValueError:
        parser.error(f"--seeds takes A:B or one number, not {args.seeds}")
    if args.losses and args.clients not in (AGENTS, *LOSABLE):
        parser.error(
            f"--losses is for agents, and for --clients {' or '.join(LOSABLE)}: "
            "others miss what a lost server takes along"
        )
    console = Console(stderr=True, emoji=False)
    counts: Counter[str] = Counter()
    deaths: Counter[str] = Counter()
    failed: list[Run] = []
    done, begin = 0, perf_counter()
    with Progress(console=console, transient=True) as progress:
        for seed in progress.track(seeds, description="seeds"):
            result = run(
                seed, backends=args.backends.split(","), program=args.clients, relayouts=args.relayouts,
                replicated=ReplicatedNode if args.replicas else None, losses=args.losses, travels=args.travels,
                groups=args.groups,
            )  # fmt: skip
            done += 1
            counts.update(result.counts)
            deaths.update(result.deaths)
            if result.wrong:
                failed.append(result)
                for line in [f"seed {seed} fails:", *result.wrong, *result.tail]:
                    console.print(line, markup=False, highlight=False, soft_wrap=True)
                if not args.all:
                    break
    seconds = perf_counter() - begin
    summary = {
        "seeds": done, "program": args.clients, "failed": [result.seed for result in failed],
        "seconds": round(seconds, 1), "per_second": round(done / seconds, 1), **counts, "deaths": dict(deaths),
    }  # fmt: skip
    print(json.dumps(summary))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
