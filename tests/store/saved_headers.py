"""What is in tests/data/store-v5-headers.sqlite: a program of schema 5 wrote it, which kept headers of clients as text.

It sent SENT to a queue, where "1" became a dead letter, "2" and "3" are with a consumer, and "4" waits; to queue:late,
a second delayed; and to a topic of a durable subscription.
"""

from mombroker.core.topology import Server, Topology
from tests.store.saved import DATA

FILE = DATA / "store-v5-headers.sqlite"
QUEUE = "queue:orders"
# Body -> headers, and whether they were typed by their looks.
SENT = {
    b"1": (b"color:a\\cb\\n\ncorrelation-id:c-1\nsize:007\n", True),
    b"2": (b"type:t\nsize:5\nrate:2.50\nnew:true\nproperty-types:size=int,rate=float,new=bool\n", False),
    b"3": (b"", False),
    b"4": (b"reply-to:/queue/answers\ncontent-type:text/plain\ncolor:red\n", False),
}


def topology() -> Topology:
    return Topology("test", {"paris": Server("paris", "127.0.0.1", 16300)}, {}, registry="paris")
