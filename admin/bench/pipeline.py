"""What a log of any size takes to export, to read by the data source, and to analyse: CPU seconds of all processes.

    python -m mombroker.admin.bench.pipeline FOLDER --records 5000000      needs pip install 'mombroker[spark]'

FOLDER gets the log (see logs.py) and its export. Each figure of Spark's is of a session of its own, `local[2]` with
2 GB. The speed of a machine is told too: what a slots dataclass of five fields takes to make, before and after.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

from mombroker.admin.bench import logs

FIVE = "server string, kind string, domain string, number long, payload long"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a new folder")
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--part", choices=["all", "analysis", "source"], default="all", help=argparse.SUPPRESS)
    args = parser.parse_args()
    bus, exported = args.folder / "bus", args.folder / "exported"
    if args.part == "all":
        tell({"speed_us": speed(), **export(bus, exported, args.records)})
        for part in ("analysis", "source"):
            subprocess.run([sys.executable, "-m", __spec__.name, args.folder, "--part", part], check=True)
        tell({"speed_us": speed()})
    else:
        tell(analysis(exported) if args.part == "analysis" else source(bus))


def tell(figures: dict[str, Any]) -> None:
    print(json.dumps({name: round(each, 3) if isinstance(each, float) else each for name, each in figures.items()}))
    sys.stdout.flush()


def export(bus: Path, exported: Path, records: int) -> dict[str, Any]:
    from mombroker.admin.analysis import export, stores

    topology, written = logs.play(bus, min(10_000, records))
    once = sum(len(each.records) for commits in written.values() for each in commits)
    logs.write(topology, written, -(-records // once))
    began = time.process_time()
    done = sum(each.records for each in export.export(stores.read(bus), exported))
    seconds = time.process_time() - began
    size = sum(file.stat().st_size for file in exported.rglob("*.parquet"))
    return {"records": done, "export_s": seconds, "export_us": 1e6 * seconds / done, "megabytes": size / 1e6}


def session() -> tuple[Any, float]:
    """Spark, and what it took until its first answer."""
    from mombroker.admin.analysis import session

    spark = session.session("local[2]", "2g")
    spark.range(10).count()
    return spark, cpu()


def analysis(exported: Path) -> dict[str, Any]:
    from mombroker.admin.analysis import report, source

    spark, start = session()
    figures, _ = report.analyse(source.read(spark, exported), messages=0)
    seconds = cpu() - start
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    peak = next(line for line in Path(f"/proc/{jvm}/status").open() if line.startswith("VmHWM"))
    records = figures["log"]["records"]
    return {"records": records, "start_s": start, "analysis_s": seconds, "jvm_megabytes": int(peak.split()[1]) // 1000}


def source(bus: Path) -> dict[str, Any]:
    """Records a CPU second: five columns grouped, and all columns to a sink that drops them. Twice each: the first
    query starts Spark's workers and has all its code compiled."""
    spark, _ = session()
    load = spark.read.format("mombroker")
    found: dict[str, Any] = {}
    for name in ("five_first", "five", "all_first", "all"):
        start = cpu()
        if name.startswith("five"):
            log = load.schema(FIVE).load(str(bus)).groupBy("server", "kind", "domain")
            count = sum(row["count"] for row in log.count().collect())
        else:
            spark.read.format("mombroker").load(str(bus)).write.format("noop").mode("overwrite").save()
        found[f"{name}_a_second"] = round(count / (cpu() - start))
    return {"records": count, **found}


def cpu() -> float:
    """Seconds of this process and all below it, the JVM and Spark's workers too, from /proc."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
        used[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    ticks, left = 0, [os.getpid()]
    while left:
        process = left.pop()
        ticks += used.get(process, 0)
        left += children.get(process, [])
    return ticks / os.sysconf("SC_CLK_TCK")


def speed(rounds: int = 200_000) -> float:
    made = make_dataclass("Made", ["a", "b", "c", "d", "e"], slots=True)
    began = time.process_time()
    for _ in range(rounds):
        made(1, 2, 3, 4, 5)
    return (time.process_time() - began) / rounds * 1e6


if __name__ == "__main__":
    main()
