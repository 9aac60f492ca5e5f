"""Records a bus, tells what its ordering costs, and looks for domains that fit its traffic better.

    python examples/cost_analysis.py FOLDER            needs pip install 'mombroker[spark]'

The bus runs in the simulator, so nothing has to be installed on thirty-six machines; what it leaves are stores and a
topology file like those of a bus that ran for real. `mom analyze FOLDER/bus.toml` and
`mom topology advise FOLDER/bus.toml` say the same from the command line.
"""

import argparse
from pathlib import Path

from mombroker.admin.analysis import export, report, session, source, stores
from mombroker.admin.topology.advise import advise, replay_all
from mombroker.lab.communities import communities
from mombroker.lab.recording import mixed, paced, record
from mombroker.net import config


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a new folder")
    parser.add_argument("--servers", type=int, default=36)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--rate", type=int, default=5000, help="messages a second")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if (args.folder / "var").exists():
        parser.error(f"{args.folder} has a recorded bus already: name a new folder")
    args.folder.mkdir(parents=True, exist_ok=True)
    folder = args.folder.resolve()

    # Servers in hidden communities, on a bus that knows nothing of them, under mixed back ends.
    traffic = communities(args.seed, args.servers)
    topology = mixed(traffic, ("matrix", "ks", "rst", "daisy"))
    truth = record(topology, paced(traffic.sends(args.messages), args.rate), folder / "var")
    (folder / "bus.toml").write_text(config.dumps(topology, folder))

    # The logs as Parquet, and Spark over that.
    list(export.export(stores.read(folder / "var"), folder / "exported"))
    spark = session.session("local[2]")
    log = source.read(spark, folder / "exported")
    figures, load = report.analyse(log, topology)
    for domain in figures["domains"]:
        print(
            "{domain:10} {ordering:7} {packets:7} packets {bytes_per_packet:7} control bytes on each".format(**domain)
        )
    wire = sum(row["control_bytes"] for row in truth.domains().values())
    print(f"{figures['totals']['control_bytes']} control bytes in the logs, {wire} on the wire")

    advice = advise(topology, load)
    replay_all(advice, load, spark)
    for option in advice.as_dict()["options"]:
        print("{topology:10} {control_bytes:8} control bytes a message, replayed {replayed_bytes:8}".format(**option))
    print(advice.verdict())
    for line in [*advice.changes, *advice.remarks]:
        print(f"- {line}")


if __name__ == "__main__":
    main()
