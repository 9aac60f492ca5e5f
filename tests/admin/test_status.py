"""`mom why` in words."""

import pytest

from mombroker.admin.cli.status import sentence

NOW = 1_700_000_000_000_000_000
MINUTE = 60 * 1_000_000_000


def cause(server: str, sequence: int, up: bool = False, last_seen: int = 0) -> dict:
    return {"server": server, "sequence": sequence, "up": up, "last_seen": last_seen}


def held(*causes: dict) -> dict:
    return {"kind": "held", "message": "s1#5", "domain": "d2", "from": "s2", "waits_for": list(causes)}


def link(**more) -> dict:
    return {"kind": "link", "peer": "s4", "domain": "d2", "packets": 12, "last_seen": 0, "trouble": "", **more}


WAIT = {"agent": "s1/x", "name": "bank", "until": NOW + 3 * 10**9, "message": "s2#7", "attempts": 2, "behind": 0}


@pytest.mark.parametrize(
    "wait, text",
    [
        (
            held(cause("s4", 17, last_seen=NOW - 3 * MINUTE)),
            "s1#5 (from s2) waits for #17 from s4 in domain d2; s4 last seen 3 min ago",
        ),
        (
            held(cause("s4", 17, up=True), cause("s4", 18, up=True), cause("s3", 1)),
            "s1#5 (from s2) waits for #17 from s4, #18 from s4, #1 from s3 in domain d2; "
            "s4 connected, s3 not seen since our start",
        ),
        (
            held(cause("s4", 17, last_seen=NOW - 3 * MINUTE)) | {"token": "s4"},
            "s1#5 (from s2) waits for #17 from s4 in domain d2; s4 last seen 3 min ago; s4 has the token",
        ),
        (
            {"kind": "parked", "message": "s1#5", "domain": "d2", "waits_for": ["s3", "s4"]},
            "s1#5 is passed on in domain d2 when it is stored by s3, s4",
        ),
        (WAIT | {"kind": "name"}, "s1/x waits for the name 'bank' in order to take s2#7"),
        (
            WAIT | {"kind": "cast", "reason": "a cast of its own in group g has gone, by s2"},
            "s1/x waits until a cast of its own in group g has gone, by s2, in order to take s2#7",
        ),
        (
            WAIT | {"kind": "cast", "reason": "a cast of its own in group g has its place at s2", "message": ""},
            "s1/x waits until a cast of its own in group g has its place at s2",
        ),
        (
            WAIT | {"kind": "cast", "reason": ""},
            "s1/x waits until a cast of its own has gone, in order to take s2#7",
        ),
        (
            {"kind": "place", "topic": "topic:t", "home": "", "messages": 1},
            "1 message of clients has no place in topic:t yet, which has no home yet",
        ),
        (
            {"kind": "view", "number": 6, "group": "g", "waits_for": ["s3", "s4"]},
            "view 6 of group g waits for s3, s4: see `mom group show g`",
        ),
        (
            WAIT | {"kind": "retry", "behind": 4},
            "s1/x has failed 2 times and tries again in 3 s to take s2#7, 4 more wait behind it",
        ),
        (
            link(last_seen=NOW - 200 * MINUTE),
            "12 packets in domain d2 wait for s4; last seen 3 h ago",
        ),
        (
            link(trouble="its store was wiped"),
            "12 packets in domain d2 wait for s4 (its store was wiped); not seen since our start",
        ),
        (
            {"kind": "casts", "group": "ledger", "agent": "s1/x", "waits_for": ["s3", "s4"]},
            "casts of s1/x in group ledger wait until s3, s4 says that it has them",
        ),
        (
            {"kind": "window", "group": "ledger", "agent": "s1/x", "home": "s2"},
            "s1/x has as many casts in group ledger on their way to others as it may, and makes no more: `mom why s2` "
            "tells whose servers lack them",
        ),
        (link(kind="credit"), "12 packets in domain d2 wait for s4; no room there now"),
    ],
)
def test_a_wait_is_one_sentence(wait, text):
    assert sentence(wait, NOW) == text
