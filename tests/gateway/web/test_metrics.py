"""The text of a scrape, as Prometheus's own parser reads it."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mombroker.gateway.web import metrics

STATUS = {
    "server": 'a"\\', "problems": ["x", "y"], "stuck": [], "full": False, "sent": 7, "received": 3, "forwarded": 0,
    "holds": 2, "reactions": 9, "failures": 1, "agents_in_memory": 4, "inbox_in_memory": 0, "dead_letters": 5,
    "names": 6, "store_bytes": 1 << 40, "max_store": 1 << 41, "free_bytes": 123, "ahead_ns": 1_500_000_000,
    "commits": 11, "certificate_expires": 1_900_000_000,
    "process": {"cpu_seconds": 1.25, "memory_bytes": 99, "files": 12, "max_files": 1024, "since": 10**18},
    "turns": {"longest_ms": 2.5, "long": 1, "of": "turn"},
    "stomp": {"clients": 1, "total": 8, "refused": 2, "unfinished_bytes": 0, "transaction_bytes": 0, "dropped": 3},
    "domains": [
        {
            "domain": name, "held": 1, "held_longest_ns": 2 * 10**9, "parked": 0, "relays": 0, "duplicates": 0,
            "waiting": 4,
        }
        for name in ("east", "west")
    ],
    "links": [
        {
            "peer": "b", "domain": "east", "up": True, "sent": 5, "received": 6, "waiting": 4, "held": 1,
            "last_seen": 10**18,
        }
    ],
}  # fmt: skip


def row(name):
    return {"destination": name, "messages": 2, "bytes": 20, "unacked": 1, "consumers": 0, "dropped": 0}


def scraped(queues=(), subscriptions=(), scraper=None):
    """What a scrape says of such a server, and what it has asked."""
    lists, asked = {"queues": list(queues), "subscriptions": list(subscriptions)}, []
    steps, reply = (scraper or metrics.Scraper()).scrape(), None
    while True:
        try:
            verb, args = steps.send(reply)
        except StopIteration as end:
            return end.value, asked
        asked.append((verb, args))
        if verb == "status":
            reply = STATUS
        elif verb == "topics":
            reply = {"topics": [], "after": "", "published": 1, "copies": 2, "unheard": 3, "dropped": 4}
        else:
            start = int(args["after"] or 0)
            end = start + args["limit"]
            reply = {verb: lists[verb][start:end], "after": str(end) if end < len(lists[verb]) else ""}


def families(answer):
    return {family.name: family for family in text_string_to_metric_families(answer.body.decode())}


def test_every_metric_has_its_samples_type_and_help():
    answer, _ = scraped([row("queue:a")], [row("sub:me:b")])
    assert answer.type == "text/plain; version=0.0.4; charset=utf-8"
    found = families(answer)
    assert len(found) == len(metrics.METRICS) and all(family.documentation for family in found.values())
    for metric in metrics.METRICS:
        name = metrics.full(metric)
        family = found[name.removesuffix("_total")]
        assert family.type == metric.type and family.samples and {each.name for each in family.samples} == {name}
        assert all(each.labels["server"] == STATUS["server"] for each in family.samples)


def test_values_are_in_the_units_that_their_names_say():
    found = families(scraped()[0])
    value = {name: family.samples[0].value for name, family in found.items() if family.samples}
    assert value["mombroker_clock_ahead_seconds"] == 1.5
    assert value["mombroker_turn_longest_seconds"] == 0.0025
    assert value["mombroker_store_bytes"] == 1 << 40
    assert value["mombroker_problems"] == 2 and value["mombroker_full"] == 0 and value["mombroker_link_up"] == 1
    assert value["process_start_time_seconds"] == 1e9
    assert [each.labels["domain"] for each in found["mombroker_domain_held"].samples] == ["east", "west"]
    assert found["mombroker_link_waiting"].samples[0].labels == {
        "server": STATUS["server"], "domain": "east", "peer": "b",
    }  # fmt: skip


def test_a_name_of_any_characters_comes_through():
    names = ['queue:a"b', "queue:a\\b", "queue:a\nb", "queue:grün", 'queue:{x="y"} 1', "queue:\udc80"]
    found = families(scraped([row(name) for name in names])[0])["mombroker_queue_messages"].samples
    assert [each.labels["destination"] for each in found] == [*names[:-1], "queue:\\udc80"]


def test_destinations_are_asked_for_in_pages_and_bounded():
    many = [row(f"queue:{at:06}") for at in range(metrics.MOST + 1)]
    answer, asked = scraped(many, many[:-1])
    pages = [args for verb, args in asked if verb == "queues"]
    assert [args["limit"] for args in pages] == [metrics.PAGE] * (metrics.MOST // metrics.PAGE)
    found = families(answer)
    assert len(found["mombroker_queue_messages"].samples) == 2 * metrics.MOST
    assert found["mombroker_queues_left_out"].samples[0].value == 1
    assert families(scraped(many[:-1])[0])["mombroker_queues_left_out"].samples[0].value == 0
    assert all(args["brief"] for verb, args in asked if verb == "subscriptions")


class Counted(dict):
    """A row that counts how often it is looked at."""

    looks = 0

    def __getitem__(self, key):
        Counted.looks += 1
        return super().__getitem__(key)


def test_no_slice_is_longer_than_a_page():
    steps, longest, page = metrics.Scraper().scrape(), 0, [Counted(row(f"queue:{at}")) for at in range(metrics.PAGE)]
    replies = {"status": STATUS, "topics": {"published": 1, "copies": 2, "unheard": 3, "dropped": 4}}
    slices, (verb, args) = 0, next(steps)
    with pytest.raises(StopIteration):
        while True:
            assert args.get("limit", 0) <= metrics.PAGE <= 100
            Counted.looks = 0
            verb, args = steps.send(replies.get(verb, {verb: page, "after": "more"}))
            longest, slices = max(longest, Counted.looks), slices + 1
    assert slices >= 2 * metrics.MOST // metrics.PAGE
    assert 0 < longest <= metrics.PAGE * (1 + len(metrics.DESTINATION))
    assert Counted.looks <= longest  # what is made of all at the end


def test_a_scrape_writes_anew_what_has_changed_and_keeps_nothing_of_what_is_gone(monkeypatch):
    written = []
    line = metrics._line
    monkeypatch.setattr(metrics, "_line", lambda *args: written.append(args[1]) or line(*args))
    scraper, rows = metrics.Scraper(), [row(f"queue:{at}") for at in range(5)]
    scraped(rows, [row("sub:me:b")], scraper)
    rows[1]["messages"], rows[3:] = 7, []
    written.clear()
    answer, _ = scraped(rows, scraper=scraper)
    found = families(answer)["mombroker_queue_messages"].samples
    assert [(each.labels["destination"], each.value) for each in found] == [
        ("queue:0", 2), ("queue:1", 7), ("queue:2", 2),
    ]  # fmt: skip
    assert answer.body == scraped(rows)[0].body
    of_rows = [where for where in written if "destination" in where]
    assert len(of_rows) == (1 + 3) * len(metrics.DESTINATION)  # one has changed; the other scraper knew of none
    assert list(scraper.written) == ["queue:0", "queue:1", "queue:2"]


@pytest.mark.parametrize("metric", metrics.METRICS, ids=lambda metric: metric.name)
def test_names_are_as_the_conventions_of_prometheus_have_them(metric):
    name = metrics.full(metric)
    assert re.fullmatch(r"(mombroker|process)_[a-z_]+", name) and name.endswith("_total") == (metric.type == "counter")
    assert not name.endswith(("_ms", "_ns"))
