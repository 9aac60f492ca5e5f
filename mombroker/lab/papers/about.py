"""What a stranger to a paper has to know to read its chapter of the report: words, and no part of any result."""

from mombroker.lab.papers.base import FAILS, HOLDS, PARTLY, UNKNOWN
from mombroker.lab.papers.ks import PAPER as KS

VERDICTS = {
    HOLDS: "everything that the claim says was found",
    PARTLY: "some of it was, or chance leaves some open",
    FAILS: "nothing of it was",
    UNKNOWN: "this model cannot tell, or chance leaves all open, or it was not run",
}

PAPERS = {
    "overlay": (
        "Two ways to keep causal order among n nodes of a random network. Overlay floods a hypercube and puts "
        "nothing on a message but a number. Timestamp sends a message to each node with a vector of n integers: "
        "as n - 1 unicasts, or as one network multicast that is copied where its ways part. The paper does not "
        "say which it means, so both are drawn. Ten senders send ten messages a ms each for 1 ms, with 0, 100 or "
        "1000 bytes of data, over links of 10 Mbit/s: far above what the links carry, so that delays are those of "
        "queues. Delays and queues are means over several graphs, corrected by what the load of their links "
        "foretells."
    ),
    "daisy": (
        "60 processes in three buildings of four LANs of five. Flat: one group, with a vector of 60 integers on "
        "each message. Daisy: a causal server for each LAN, groups of servers for each building and for the "
        "campus, and a vector of five on each message in each group. Everybody sends to all. A LAN takes 0.1 ms, "
        "the backbone of a building 2 ms in the mean, that of the campus 10 ms. Delays are of messages for another "
        "building: the flat group has them over three hops, the daisy, too, or over two from the LAN whose server "
        "is on the campus."
    ),
    "ks": (
        "How much a message carries, in per cent of the n² integers of RST. KS carries only dependencies that can "
        "still matter; KS' is KS with a bit for each pair of members in place of lists. Each of n processes "
        "sends once in MIMT ms in the mean; a message takes MTT ms in the mean; M/T is the share of sends that "
        "are multicasts, of random size."
    ),
    "groups": (
        "A process group: a sender and 1 to 7 others on one Ethernet of 10 Mbit/s, in causal order (CBCAST), and in "
        "one order for all (ABCAST), which a member that is not the sender decides. What a packet costs a host is "
        "taken from the paper's own tables, so that times are foretold and not those of today's hosts. What is "
        "counted in messages and fields needs no such model."
    ),
    "domains": (
        "Round trips of agents on n servers, in one domain of causality (flat) or in many: a bus of √n domains on "
        "a backbone, a daisy chain, a tree. In the model a hop in a domain of s servers takes a + b s²: a = 1 "
        "ms, b = 10 µs. The hops, and what this bus writes and sends beside, are measured."
    ),
}  # fmt: skip

FIGURES = {
    ("overlay", "sustained"): "Not in the paper, at whose rate almost all is sent before anything comes: here the "
    "claim that delivery queues grow with the system (figure 12) is judged.",
}  # fmt: skip


def verdicts() -> str:
    return "; ".join(f"{verdict}: {meaning}" for verdict, meaning in VERDICTS.items()) + "."


def figure(paper: str, name: str) -> str:
    """What its curves stand for; empty where the legend says it."""
    return "; ".join(KS.figures[name].curves) if paper == KS.name else FIGURES.get((paper, name), "")
