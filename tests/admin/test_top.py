"""`mom top`: two looks at servers, and what has happened between them."""

from mombroker.admin.cli.top import Look
from mombroker.core.errors import MomError


class Servers:
    """What they answer, by server; one that is not there does not."""

    def __init__(self, **seconds):
        self.status = {name: made(name) for name in seconds}
        self.queued = {name: {} for name in seconds}

    def ask(self, server, verb, **args):
        if server not in self.status:
            raise MomError(f"{server} does not answer")
        if verb == "status":
            return self.status[server]
        assert verb == "queues" and args["fullest"]
        rows = [{"destination": name, "messages": count} for name, count in self.queued[server].items()]
        return {"queues": sorted(rows, key=lambda row: -row["messages"])[: args["limit"]], "after": ""}

    def later(self, server, seconds, cpu=0.0, **more):
        found = dict(self.status[server])
        found["now"] += int(seconds * 1e9)
        found["process"] = {**found["process"], "cpu_seconds": found["process"]["cpu_seconds"] + cpu}
        for name, count in more.items():
            found[name] += count
        self.status[server] = found


def made(name):
    return {
        "server": name, "now": 10**18, "full": False, "store_bytes": 5 << 20, "dead_letters": 1, "problems": ["x"],
        "sent": 100, "received": 0, "reactions": 7, "failures": 0, "commits": 3,
        "process": {"since": 1, "cpu_seconds": 4.0, "memory_bytes": 64 << 20}, "stomp": {"clients": 2},
        "links": [{"held": 1, "waiting": 5}, {"held": 0, "waiting": 6}],
    }  # fmt: skip


def test_rates_are_of_one_second_by_the_clock_of_the_server():
    servers = Servers(a=1)
    look = Look(servers.ask, ["a"], 10)
    look.take()
    assert "sent_s" not in look.servers()[0]
    servers.later("a", 4, cpu=1.0, sent=1000, reactions=2)
    look.take()
    (row,) = look.servers()
    assert (row["sent_s"], row["reactions_s"], row["received_s"], row["cpu_percent"]) == (250, 0.5, 0, 25)
    assert (row["state"], row["held"], row["waiting"], row["memory_mb"], row["store_mb"]) == ("up", 1, 11, 64, 5)


def test_a_server_that_was_started_anew_has_no_rates_for_once():
    servers = Servers(a=1)
    look = Look(servers.ask, ["a"], 0)
    look.take()
    servers.later("a", 1)
    servers.status["a"]["process"] = {"since": 2, "cpu_seconds": 0.1, "memory_bytes": 1}
    servers.status["a"]["sent"] = 0
    look.take()
    assert "sent_s" not in look.servers()[0]
    servers.later("a", 1, sent=3)
    look.take()
    assert look.servers()[0]["sent_s"] == 3


def test_a_server_that_does_not_answer_is_a_line_of_its_own():
    servers = Servers(a=1, b=1)
    look = Look(servers.ask, ["a", "b"], 10)
    look.take()
    del servers.status["b"]
    servers.later("a", 1)
    look.take()
    assert [(row["server"], row["state"]) for row in look.servers()] == [("a", "up"), ("b", "down")]
    servers.status["b"] = made("b")
    look.take()
    assert "sent_s" not in look.servers()[1]


def test_the_fullest_queues_of_all_servers_with_how_they_change():
    servers = Servers(a=1, b=1)
    servers.queued = {"a": {"queue:x": 5, "queue:y": 50}, "b": {"queue:z": 20}}
    look = Look(servers.ask, ["a", "b"], 2)
    look.take()
    servers.queued["b"]["queue:z"] = 10
    servers.queued["a"]["queue:x"] = 30
    for name in "ab":
        servers.later(name, 2)
    look.take()
    assert [(row["server"], row["destination"], row["messages"], row.get("change_s")) for row in look.queues()] == [
        ("a", "queue:y", 50, 0), ("a", "queue:x", 30, 12),
    ]  # fmt: skip
