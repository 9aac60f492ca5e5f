"""Three questions of who plans a bus, answered from an export of its logs.

    python examples/planner.py EXPORT [PRICE_PER_GB]      needs pip install 'mombroker[spark]'

What does a link cost, and when? Whose messages are they? How much of the delay would a faster disk save, how much a
faster line, and how much another order? The first is answered from roll-ups, without Java; the others by Spark.
"""

import sys
from pathlib import Path

from pyspark.sql import functions as F

from mombroker.admin.analysis import compare, cost, rollup, session, source, times


def links(exported: Path, price: float) -> None:
    rollup.update(exported)
    print("The dearest hours of links")
    rows = compare.trend(rollup.read(exported), hours=1, of="link", price=price)
    for row in sorted(rows, key=lambda row: -(row["wire_bytes"] or row["control_bytes"]))[:5]:
        wire = "bytes unknown" if row["wire_bytes"] is None else f"{row['wire_bytes']} bytes, {row['price']:.4f}"
        print(f"  {row['start']} {row['from']} to {row['to']}: {wire}, {row['control_bytes']} of control")


def senders(exported: Path) -> None:
    log = source.read(session.session(), exported)
    flowing = cost.flows(log)
    print("Who sends most")
    for row in cost.top(cost.agents(flowing), "payload", 5).collect():
        print(f"  {row.source} to {row.target}: {row.messages} messages, {row.payload} bytes")
    for row in cost.top(cost.clients(log, flowing), F.col("sent_bytes") + F.col("given_bytes"), 5).collect():
        print(f"  {row.user or 'anonymous'} ({row.client_id}), {row.destination}: {row.sent} sent, {row.given} given")


def delays(exported: Path) -> None:
    log = source.read(session.session(), exported)
    spread = times.spread(times.hops(log), times.links(cost.taken(log)))
    (every,) = times.delays(spread).where("domain is null").collect()
    total = every.store + every.link + every.hold
    print("Of the time that messages take from server to server")
    for part, what in (("store", "a faster disk"), ("link", "a faster line"), ("hold", "another order")):
        print(f"  {100 * every[part] / total if total else 0:.0f} % ({part}) could be saved by {what}")


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit((__doc__ or "").strip())
    exported, price = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) == 3 else 0.0
    links(exported, price)
    senders(exported)
    delays(exported)


if __name__ == "__main__":
    main()
