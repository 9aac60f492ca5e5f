"""The text of a topology, and how it meets the file of a server."""

import json
import random

import pytest

from mombroker.core import revision
from mombroker.core.changes import Kind, difference, told
from mombroker.core.errors import MomError
from mombroker.core.topology import AgentDecl, Server
from tests.core.bus import START, topology
from tests.core.test_changes import LINE, bus, pair

SHOP = [AgentDecl("till", "paris", "shop:Till", {"price": 2.5, "open": True, "days": ["mo", {"tu": 1}]})]


def whole(**more):
    made = bus(LINE, ordering={"east": "ks"}, agents=SHOP, policies=[{"match": "queue:*", "max_messages": 5}], **more)
    made.domains["west"].options = {"relay": "stable"}
    return made


def test_a_text_says_all_that_servers_have_alike():
    file = whole(allow=("shop",))
    back = revision.read(revision.text_of(file))
    assert difference(file, back).kind is Kind.NOTHING
    assert back == file


@pytest.mark.parametrize("seed", range(100))
def test_any_topology_comes_back_from_its_text(seed):
    for made in pair(seed):
        assert revision.read(revision.text_of(made)) == made


def test_the_order_in_the_file_changes_the_text_and_not_its_digest():
    one, two = whole(), whole()
    two.servers = dict(reversed(two.servers.items()))
    two.domains = dict(reversed(two.domains.items()))
    texts = revision.text_of(one), revision.text_of(two)
    assert texts[0] != texts[1] and revision.digest_of(texts[0]) == revision.digest_of(texts[1])
    two.servers["lyon"].port += 1
    assert revision.digest_of(revision.text_of(two)) != revision.digest_of(texts[0])


def test_what_is_of_one_server_alone_is_not_in_it():
    file, text = whole(), revision.text_of(whole())
    file.limits, file.log, file.secret_file = {"max_attempts": 2}, {"enabled": False}, "bus.secret"
    file.servers["paris"].data, file.servers["paris"].stomp, file.servers["paris"].anonymous = "x", "127.0.0.1:1", True
    assert revision.text_of(file) == text


def test_a_server_goes_by_its_store_and_keeps_what_is_its_own():
    stored, file = whole(), whole(limits={"max_attempts": 2}, log={"enabled": False})
    stored.servers["paris"].host = stored.servers["lyon"].host = "127.0.0.9"
    stored.servers["nantes"] = Server("nantes", "127.0.0.8", 7)
    stored.domains["north"] = topology({"d": "ab"}).domains["d"]
    file.policies, file.servers["lyon"].data, file.servers["paris"].stomp = [], "here", "127.0.0.1:61613"
    now = revision.effective(file, revision.rows(3, revision.text_of(stored), START, []), "paris")
    assert now.policies == stored.policies and "north" in now.domains and "nantes" in now.servers
    assert now.servers["paris"] is file.servers["paris"]  # its own address is its own
    assert (now.servers["lyon"].host, now.servers["lyon"].data) == ("127.0.0.9", "here")
    assert now.servers["metz"] is file.servers["metz"]
    assert (now.limits, now.log) == ({"max_attempts": 2}, {"enabled": False})


def test_an_empty_store_goes_by_the_file():
    file = whole()
    assert revision.effective(file, {}, "paris") == file


def test_a_file_of_another_bus_and_a_server_that_has_left_are_refused():
    rows = revision.rows(3, revision.text_of(whole()), START, [])
    other = topology({"x": "ab"})
    with pytest.raises(MomError, match="the store of a is of bus bus, and the topology file of test"):
        revision.effective(other, rows, "a")
    with pytest.raises(MomError, match="brest has left the bus with revision 4"):
        left = bus({"east": ["metz", "nancy"]})
        revision.effective(whole(), revision.rows(4, revision.text_of(left), START, []), "brest")


def test_the_history_is_bounded():
    meta = {}
    for number in range(1, 2 * revision.KEPT):
        for key, row in revision.rows(number, revision.text_of(whole()), START + number, ["x" * 999] * 99).items():
            meta.pop(key, None) if row is None else meta.update({key: row})
    past = revision.history(meta)
    assert list(past) == list(range(2 * revision.KEPT - 1, revision.KEPT - 1, -1))
    since, digest, lines = past[150]
    assert since == START + 150 and digest == revision.digest_of(str(meta["topology"]))
    assert len(lines) == revision.TOLD + 1 and lines[-1] == "and 69 more"
    assert sum(len(str(row)) for row in meta.values()) < 1_000_000


def test_a_topology_that_no_store_would_keep_is_refused():
    with pytest.raises(MomError, match=r"servers keep 4194304 at most: make it smaller"):
        revision.text_of(bus(LINE, policies=[{"match": "queue:" + "x" * 5_000_000}]))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_no_text_of_a_topology_is_refused_in_one_sentence(seed):
    """Parts of a right one are replaced by what is of another kind, or lost."""
    rng = random.Random(seed)
    junk = [None, 0, -1, 1.5, True, "", "x", [], [[]], {}, {"": {}}, ["paris"], {"paris": 1}, 10**30, "a\nb"]
    for _ in range(100):
        content = json.loads(revision.text_of(whole(allow=("shop",))))
        at, key = content, rng.choice(list(content))
        while isinstance(at[key], dict | list) and at[key] and rng.random() < 0.7:
            at = at[key]
            key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
        if rng.random() < 0.2:
            del at[key]
        else:
            at[key] = rng.choice(junk)
        text = json.dumps(content)
        try:
            made = revision.read(text)
        except MomError as error:
            assert str(error) and "\n" not in str(error)
        else:
            assert not [fault for fault in made.faults() if fault.key != ("bus", "secret_file")]
            assert json.loads(revision.text_of(made)).keys() == content.keys()
    for text in ("", "{", "[]", "null", "[" * 100_000, "x" * (revision.MOST_BYTES + 1)):
        with pytest.raises(MomError):
            revision.read(text)


def test_a_difference_is_told_line_by_line():
    new = {**LINE, "east": ["metz", "nancy", "quimper"], "far": ["quimper", "ouessant"]}
    del new["link"]
    new["west"] = ["paris", "lyon", "nice", "metz"]
    made = bus(new, ordering={"far": "matrix"}, allow=("shop",))
    made.servers["lyon"].host = "127.0.0.9"
    made.domains["west"].options = {"relay": "stable"}
    port = {name: server.listen for name, server in made.servers.items()}
    assert told(whole(), made) == [
        f"+ server quimper at {port['quimper']}",
        f"+ server ouessant at {port['ouessant']}",
        "- server brest",
        '~ domain west: + metz',
        "- domain link",
        "~ domain east: + quimper, - brest, ks -> matrix",
        "+ domain far: quimper and ouessant by matrix",
        f"~ server lyon: 127.0.0.1:{made.servers['lyon'].port} -> {port['lyon']}",
        "~ allow: nothing -> shop",
        "- agent till on paris (shop:Till)",
        "~ policies of the file: queue:* -> none",
    ]  # fmt: skip
