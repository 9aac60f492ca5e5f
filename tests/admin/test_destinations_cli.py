"""`mom queue`, `topic`, `subscription`, `dlq`, `policy`, `send`, `receive`, `request`, on a bus of two processes."""

import json
import threading
import time

import pytest
from click.shell_completion import ShellComplete

from mombroker import jms
from mombroker.admin.cli import destinations, options
from mombroker.admin.cli.main import cli
from tests.admin.processes import Processes, in_terminal, write_topology

POLICIES = """
[[policies]]
match = "queue:fragile*"
max_redeliveries = 0
[[policies]]
match = "sub:*"
max_redeliveries = 0
[[policies]]
match = "queue:prices"
on_expiry = "drop"
[[policies]]
match = "queue:unheard"
on_expiry = "drop"
"""


@pytest.fixture(scope="module")
def bus(tmp_path_factory):
    file = write_topology(tmp_path_factory.mktemp("bus"), {"d": "ab"}, {}, POLICIES)
    made = Processes(file)
    made.listen("ab")
    made.up()
    yield made
    made.down()


def bodies(rows):
    return [row["body"] for row in rows]


def test_what_is_sent_is_received(bus):
    bus.mom("send", "-s", "a", "/queue/first", "one pizza", "-p", "customer=ann", "-p", "size=3", "--priority", "7")
    bus.mom("send", "-s", "b", "/queue/first", "--lines", stdin="two\nthree\n")
    form = r"%i|%d|%k|%p|%c|%{customer}|%{size}|%P|%b|%%\n"
    (line,) = bus.mom("receive", "-s", "b", "/queue/first", "--format", form).stdout.splitlines()
    assert len(line.partition("|")[0]) > 30 and line.endswith(
        '|/queue/first|text|7|1|ann|3|{"customer": "ann", "size": 3, "JMSXDeliveryCount": 1}|one pizza|%'
    )
    assert bus.mom("receive", "-s", "a", "/queue/first", "-n", "0", "--timeout", "0.5").stdout == "two\nthree\n"
    assert "nothing came for 0.2 s" in bus.mom("receive", "-s", "a", "/queue/first", "--timeout", "0.2", code=6).stderr


def test_what_is_sent_and_received_is_told_as_json_too(bus):
    words = [
        "/queue/json",
        "-s",
        "a",
        "--correlation-id",
        "c",
        "--reply-to",
        "/queue/back",
        "-p",
        "a=1.5",
        "-p",
        'n="x\\ny"',
    ]
    sent = bus.json("send", *words, "é\n")
    assert sent == {"destination": "/queue/json", "sent": 1, "id": sent["id"]}
    for more, content, count in ((["--lines"], "two\nthree\n", 2), ([], b"\xff", 1)):
        told = bus.mom("send", "-s", "a", "/queue/json", *more, "-o", "json", stdin=content).stdout
        assert json.loads(told)["sent"] == count
    lines = bus.mom("receive", "-s", "a", "/queue/json", "-n", "4", "-o", "json").stdout.splitlines()
    first, *_, last = map(json.loads, lines)
    known = {"id": sent["id"], "timestamp": first["timestamp"]}
    assert first == known | {
        "destination": "/queue/json", "kind": "text", "priority": 4, "deliveries": 1, "reply_to": "/queue/back",
        "correlation_id": "c", "properties": {"a": 1.5, "n": "x\ny", "JMSXDeliveryCount": 1}, "body": "é\n",
    }  # fmt: skip
    assert (len(lines), last["body_base64"], "body" in last) == (4, "/w==", False)
    wrong = bus.mom("receive", "/queue/json", "-s", "a", "-o", "json", "--format", "%b", code=2).stderr
    assert "--format is for text" in wrong


def test_a_shell_completes_the_names_of_servers_and_queues(bus, monkeypatch):
    bus.mom("send", "-s", "a", "/queue/complete.one", "x")
    shell = ShellComplete(cli, {}, "mom", "_MOM_COMPLETE")

    def found(*words, begun=""):
        return [item.value for item in shell.get_completions([*words], begun)]

    monkeypatch.setenv("MOM_FILE", str(bus.file))
    assert found("queue", "show", begun="complete.") == ["complete.one"] == found("queue", "move", begun="compl")
    assert found("status", "--server") == ["a", "b"] and found("queue", "show", "-s", "b", begun="co") == [
        "complete.one"
    ]
    monkeypatch.setenv("MOM_FILE", "none.toml")
    assert found("queue", "show") == [] == found("status", "--server")
    assert found("queue", "show", "--file", str(bus.file), begun="complete.") == ["complete.one"]


def test_only_what_a_selector_fits_is_received(bus):
    for number in range(3):
        bus.mom("send", "-s", "a", "/queue/fits", f"{number}", "-p", f"n={number}")
    assert bus.mom("receive", "-s", "a", "/queue/fits", "--where", "n > 1").stdout == "2\n"
    assert "selector" in bus.mom("receive", "-s", "a", "/queue/fits", "--where", "n >", code=1).stderr
    assert bus.mom("receive", "-s", "a", "/queue/fits", "-n", "2").stdout == "0\n1\n"


def test_a_wrong_format_or_destination_is_told(bus):
    assert "%y means nothing in a format" in bus.mom("receive", "/queue/x", "--format", "%y", code=2).stderr
    assert "/nothing/x" in bus.mom("send", "-s", "a", "/nothing/x", "y", code=1).stderr
    assert "name one of a, b by --server" in bus.mom("send", "/queue/x", "y", code=2).stderr
    assert "/topic/x is no queue" in bus.mom("queue", "show", "/topic/x", code=2).stderr


def test_times_are_written_in_utc():
    assert options.utc(500) == "1970-01-01T00:00:00.500Z"


def test_a_request_gets_its_answer(bus):
    def serve():
        with jms.connect(bus.urls["b"]) as context:
            message = context.consumer("/queue/prices").receive(30)
            context.reply(message, f"{message.body}: 9")

    server = threading.Thread(target=serve)
    server.start()
    assert bus.mom("request", "-s", "a", "/queue/prices", "pizza", "--timeout", "30").stdout == "pizza: 9\n"
    server.join()
    assert "no answer" in bus.mom("request", "-s", "a", "/queue/prices", "x", "--timeout", "0.2", code=6).stderr


def test_a_request_that_nobody_has_answered_does_not_stay(bus):
    bus.mom("request", "-s", "a", "/queue/unheard", "x", "--timeout", "0.2", code=6)
    bus.mom("request", "-s", "a", "/queue/unheard", "kept", "--timeout", "0", "--ttl", "3600", code=6)
    for _ in range(200):
        if bus.json("queue", "show", "unheard")["messages"] == 1:
            break
        time.sleep(0.05)
    assert bus.mom("receive", "-s", "a", "/queue/unheard", "-n", "1").stdout == "kept\n"


def test_what_is_no_utf_8_is_one_line(bus):
    for words in (("subscription", "show"), ("user", "delete"), ("agent", "show")):
        result = bus.mom(*words, "caf\udce9", code=1)
        assert "Traceback" not in result.output and result.output.splitlines()[-1].startswith("Error: "), words


def test_a_server_that_takes_clients_by_tls_alone(tmp_path):
    file = tmp_path / "bus.toml"
    file.write_text(
        '[bus]\nname = "tls"\n[servers.a]\nlisten = "127.0.0.1:1"\nstomp_tls = "0.0.0.0:61614"\ncertificate = "c.pem"\n'
    )
    (tmp_path / "c.pem").touch()
    for words in (("send", "/queue/a", "x"), ("receive", "/queue/a"), ("request", "/queue/a", "x")):
        result = Processes(file).mom(*words, code=1)
        assert "a takes clients by TLS alone: give --url stomps://HOST:61614" in result.output


def test_queues_are_created_listed_shown_purged_and_deleted(bus):
    assert bus.json("queue", "create", "/queue/mine", "-s", "b")["agent"] == "b/queue:mine"
    assert "is taken by b/queue:mine" in bus.mom("queue", "create", "mine", "-s", "a", code=1).stderr
    for text in ("1", "2"):
        bus.mom("send", "-s", "a", "/queue/mine", text)
    (row,) = [row for row in bus.json("queue", "list") if row["destination"] == "queue:mine"]
    assert (row["server"], row["messages"], row["bytes"]) == ("b", 2, 2)
    assert "queue:mine" not in bus.mom("queue", "list", "-s", "a").stdout
    found = bus.json("queue", "show", "mine")
    assert (found["server"], found["ready"], found["consumers"]) == ("b", 2, [])
    assert found["policy"]["overflow"] == "block"
    assert bodies(bus.json("queue", "browse", "mine")) == ["1", "2"]
    assert "has more; see --limit" in bus.mom("queue", "browse", "mine", "--limit", "1").stderr
    assert bus.json("queue", "purge", "mine", "--yes")["purged"] == 2
    assert bus.json("queue", "browse", "mine") == []
    assert bus.json("queue", "delete", "mine", "--yes")["deleted"] == "queue:mine"
    assert "mine" in bus.mom("queue", "show", "mine", code=1).stderr


def test_messages_are_moved_between_queues_of_different_servers(bus):
    bus.mom("queue", "create", "old", "-s", "b")
    with jms.connect(bus.urls["a"]) as context:
        for number in range(1_200):
            context.producer("/queue/new").send(f"{number}", properties={"odd": number % 2}, wait=False)
        context.flush()
    assert bus.json("queue", "move", "new", "old", "--where", "odd = 1")["moved"] == 600
    rows = bus.json("queue", "browse", "old", "--limit", "700")
    assert bodies(rows) == [f"{number}" for number in range(1, 1_200, 2)]
    assert rows[0]["headers"]["odd"] == 1 and rows[0]["state"] == "ready"
    ids = [str(row["id"]) for row in bus.json("queue", "browse", "new", "--limit", "3")]
    assert bus.json("queue", "move", "new", "old", ids[0], ids[2])["moved"] == 2
    assert bodies(bus.json("queue", "browse", "new", "--limit", "1")) == ["2"]
    refused = bus.mom("queue", "move", "new", "old", ids[1], "99999999", code=1).stderr
    assert "1 of the messages that were named does not wait in queue:new; 1 moved" in refused
    assert bus.json("queue", "move", "new", "old", "--limit", "5")["moved"] == 5


@pytest.mark.parametrize(
    "body, size, output, shown",
    [
        (b"caf\xc3\xa9", 5, "json", {"body": "café"}),
        (b"caf\xc3", 9, "json", {"body": "caf"}),  # cut within a sign
        (b"caf\xc3", 4, "json", {"body_base64": "Y2Fmww=="}),
        (b"caf\xc3", 4, "table", {"body": b"caf\xc3"}),
    ],
)
def test_a_body_that_is_no_text_is_told_in_base_64(body, size, output, shown):
    row = destinations.row({"timestamp": 0, "expires": 0, "due": 0, "bytes": size, "body": body}, output)
    assert {name: value for name, value in row.items() if name.startswith("body")} == shown


def test_dead_letters_are_listed_and_retried(bus):
    with jms.connect(bus.urls["a"], ack="individual", client_id="ann") as context:
        consumer = context.consumer("/queue/fragile")
        news = context.consumer("/topic/news", durable="daily")
        for number in range(3):
            context.send("/queue/fragile", f"{number}", properties={"n": number})
        context.send("/topic/news", "war")
        for _ in range(3):
            consumer.receive(30).reject()
        news.receive(30).reject()
        rows = []
        while len(rows) < 4:
            rows = bus.json("dlq", "list")
        assert sorted((row["queue"], row["body"], row["from"], row["count"]) for row in rows) == [
            ("queue:DLQ.ann:daily", "war", "sub:ann:daily", "1"),
            *(("queue:DLQ.fragile", f"{number}", "queue:fragile", "1") for number in range(3)),
        ]  # fmt: skip
        assert "given back 1 time" in bus.mom("dlq", "list").stdout
        assert bodies(bus.json("dlq", "list", "DLQ.fragile", "--where", "n > 1")) == ["2"]
        assert bus.json("dlq", "retry", "DLQ.fragile", "--where", "n > 1")[0]["moved"] == 1
        assert consumer.receive(30).body == "2"
        assert sum(row["moved"] for row in bus.json("dlq", "retry")) == 3
        assert [consumer.receive(30).body for _ in range(2)] == ["0", "1"] and news.receive(30).body == "war"
    assert bus.json("dlq", "list") == []


def test_a_queue_of_dead_letters_is_retried_by_name(bus):
    bus.mom("send", "-s", "a", "/queue/DLQ.nobody", "x")
    assert bus.json("queue", "retry", "DLQ.nobody") == {"destination": "queue:DLQ.nobody", "moved": 0, "left": 1}
    assert "comes back when" in bus.mom("queue", "release", "DLQ.nobody", "-s", "a", code=1).stderr
    assert bus.json("queue", "release", "DLQ.nobody", "-s", "b")["released"] == 0


def test_topics_and_subscriptions_are_listed(bus):
    with jms.connect(bus.urls["b"], client_id="bob") as context:
        context.consumer("/topic/weather.*").close()
        context.consumer("/topic/sports", durable="all", selector="goals > 2").close()
        context.consumer("/topic/plain")
        rows = bus.json("topic", "list", "-s", "a")
        assert {"topic:sports", "topic:plain"} <= {row["topic"] for row in rows if row["servers"] == ["b"]}
    bus.mom("send", "-s", "a", "/topic/sports", "draw", "-p", "goals=0")
    bus.mom("send", "-s", "a", "/topic/sports", "win", "-p", "goals=3")
    words = ["all", "--client-id", "bob"]
    for _ in range(100):
        if bus.json("subscription", "show", *words)["messages"]:
            break
    (row,) = [row for row in bus.json("subscription", "list") if row["name"] == "all"]
    assert (row["server"], row["client_id"], row["topics"], row["selector"]) == (
        "b",
        "bob",
        ["topic:sports"],
        "goals > 2",
    )
    assert (row["messages"], row["durable"], row["shared"]) == (1, True, False)
    assert bodies(bus.json("subscription", "browse", *words)) == ["win"]
    received = bus.mom(
        "receive", "-s", "b", "/topic/sports", "--durable", "all", "--client-id", "bob", "--where", "goals > 2"
    )
    assert received.stdout == "win\n"
    assert bus.json("subscription", "purge", *words, "--yes")["purged"] == 0
    bus.json("subscription", "delete", *words, "--yes")
    assert "all" not in [row["name"] for row in bus.json("subscription", "list")]


def test_policies_are_set_at_run_time(bus):
    bus.mom("policy", "set", "queue:tiny*", "max_messages=1", "overflow=reject", "-s", "b")
    rows = bus.json("policy", "list", "-s", "a")
    assert [row["match"] for row in rows] == ["queue:tiny*", "queue:fragile*", "sub:*", "queue:prices", "queue:unheard"]
    assert [row["from"] for row in rows] == ["mom policy set", *["topology file"] * 4]
    words = ["policy", "list", "-s", "a", "-f", str(bus.file)]
    lines = in_terminal(f"from mombroker.admin.cli.main import cli; cli({words!r})", 80)
    assert "│ match " in lines[1] and lines[1].split(" │ ")[-1].startswith("settings") and len(lines) == 9
    assert "queue:tiny*" in lines[3] and "max_messages=1, overflow=reject" in lines[3]
    bus.mom("send", "-s", "a", "/queue/tiny", "1")
    assert "is full" in bus.mom("send", "-s", "a", "/queue/tiny", "2", code=1).stderr
    assert "overflow must be" in bus.mom("policy", "set", "queue:x", "overflow=drop", code=1).stderr
    bus.mom("policy", "delete", "queue:tiny*")
    bus.mom("send", "-s", "a", "/queue/tiny", "2")
    assert "no policy was set for 'queue:tiny*'" in bus.mom("policy", "delete", "queue:tiny*", code=1).stderr


def test_lists_of_many_queues_come_in_pages(bus):
    with jms.connect(bus.urls["a"]) as context:
        for number in range(520):
            context.producer(f"/queue/many.{number}").send("x", wait=False)
        context.flush()
    names = [row["destination"] for row in bus.json("queue", "list", "-s", "a")]
    assert len([name for name in names if name.startswith("queue:many.")]) == 520
    assert json.loads(bus.mom("queue", "list", "-s", "a", "-o", "json", "--limit", "3").stdout)[2]
    assert "a has more; see --limit" in bus.mom("queue", "list", "-s", "a", "--limit", "3").stderr


def test_a_subscription_is_made_moved_and_released_by_an_operator(bus):
    words = ["early", "--client-id", "an:odd/id"]
    made = bus.json("subscription", "create", *words, "--topic", "rates.*", "--selector", "n > 1", "-s", "b")
    assert made["server"] == "b"
    (row,) = [row for row in bus.json("subscription", "list") if row["name"] == "early"]
    assert (row["client_id"], row["topics"], row["selector"], row["shared"]) == (
        "an:odd/id", ["topic:rates.*"], "n > 1", False,
    )  # fmt: skip
    for number in range(4):
        bus.mom("send", "-s", "b", "/topic/rates.usd", str(number), "-p", f"n={number}")
    assert bodies(bus.json("subscription", "browse", *words)) == ["2", "3"]
    assert bus.json("subscription", "move", "early", "rates.old", "--where", "n = 2", *words[1:])["moved"] == 1
    while bus.mom("queue", "browse", "rates.old", code=None).exit_code:
        time.sleep(0.05)  # the name is still on its way
    assert bodies(bus.json("queue", "browse", "rates.old")) == ["2"]
    assert bus.json("subscription", "release", *words, "-s", "a")["released"] == 0
    with jms.connect(bus.urls["b"], client_id="an:odd/id", ack="individual") as context:
        context.consumer("/topic/rates.*", durable="early", selector="n > 1").receive(30).reject()
        rows = []
        while not rows:
            rows = [row for row in bus.json("dlq", "list") if row["queue"] == "queue:DLQ.an:odd/id:early"]
    assert bodies(rows) == ["3"] and rows[0]["time"].endswith("Z")
    assert bus.json("subscription", "retry", *words)["moved"] == 1
    while bodies(bus.json("subscription", "browse", *words)) != ["3"]:
        pass
    bus.mom("subscription", "delete", *words, "--yes")


def test_a_subscription_that_nobody_could_have_is_not_made(bus):
    make = ["subscription", "create", "never", "-s", "a", "--topic"]
    assert "give --client-id" in bus.mom(*make, "x", code=2).stderr
    assert "/queue/x is no topic" in bus.mom(*make, "/queue/x", "--shared", code=2).stderr
    assert "at character" in bus.mom(*make, "x", "--shared", "--selector", "a >", code=1).stderr
    bus.mom(*make, "x", "--shared")
    assert "is taken" in bus.mom(*make, "x", "--shared", code=1).stderr
    bus.mom("subscription", "delete", "never", "--yes")


@pytest.mark.parametrize(("words", "said"), [
    (("queue", "move", "nope", "--to", "b"), "no queue is named 'nope' on this bus yet: see `mom queue list`"),
    (("queue", "show", "n o/pe"), "no queue is named 'n o/pe' on this bus yet: see `mom queue list`"),
    (("subscription", "move", "nope", "--client-id", "m:e", "--to", "b"),
     "no subscription is named 'nope' of client 'm:e' on this bus yet: see `mom subscription list`"),
    (("subscription", "show", "n:pe"), "no subscription is named 'n:pe' on this bus yet: see `mom subscription list`"),
    (("topic", "move", "nope", "--to", "b"), "topic:nope has no home: nobody has created it"),
    (("agent", "move", "nope", "--to", "b"), "no agent is named 'nope' on this bus yet: see `mom agent list`"),
    (("group", "show", "nope"), "there is no group nope"),
])  # fmt: skip
def test_what_is_not_there_is_called_what_it_would_be(bus, words, said):
    result = bus.mom(*words, code=None)
    assert result.exit_code in (1, 6) and said in result.stderr


@pytest.mark.parametrize("words", [
    ("queue", "delete", "nope"), ("queue", "purge", "nope"), ("subscription", "delete", "nope"),
    ("subscription", "purge", "nope"),
])  # fmt: skip
def test_nobody_is_asked_about_what_is_not_there(bus, words):
    result = bus.mom(*words, code=1, stdin="y\n")
    assert "nope" in result.stderr and "[y/N]" not in result.output


def test_who_loses_messages_is_asked_first(bus):
    bus.mom("send", "-s", "a", "/queue/dear", "x")
    refused = bus.mom("queue", "delete", "dear", code=1, stdin="n\n")
    assert "Delete queue:dear? 1 message is in it. [y/N]" in refused.output
    assert bodies(bus.json("queue", "browse", "dear")) == ["x"]
    bus.mom("queue", "delete", "dear", stdin="y\n")
    assert "queue:dear" not in bus.mom("queue", "list").stdout


def test_a_policy_is_listed_with_all_that_it_says(bus):
    (row, *_) = [row for row in bus.json("policy", "list") if row["match"] == "queue:fragile*"]
    head = bus.mom("policy", "list").stdout.splitlines()[0].split()
    assert sorted(head) == sorted(row) and "block_seconds" in head and "redelivery_delay_multiplier" in head


def test_times_that_never_come_and_numbers_that_nothing_can_hold(bus):
    bus.mom("send", "-s", "b", "/queue/late", "stays", "--ttl", "1e10")
    bus.mom("send", "-s", "b", "/queue/late", "stays, too", "--ttl", "inf", "-p", "n=" + "9" * 5_000)
    bus.mom("send", "-s", "b", "/queue/late", "not yet", "--delay", "1e300")
    assert bodies(bus.json("queue", "browse", "late")) == ["stays", "stays, too"]
    assert bus.mom("receive", "-s", "a", "/queue/late", "--timeout", "inf").stdout == "stays\n"
    for wrong in (["--ttl", "nan"], ["--ttl", "-1"], ["--delay", "nan"]):
        bus.mom("send", "-s", "a", "/queue/late", "x", *wrong, code=2)
    assert "64 bits" in bus.mom("send", "-s", "a", "/queue/late", "x", "-p", "n=" + "9" * 400, code=1).stderr
    bus.mom("queue", "move", "late", "later", "9" * 30, code=2)
    for wrong in (
        "block_seconds=Infinity",
        "redelivery_delay=NaN",
        "redelivery_delay_multiplier=1e200",
        "max_messages=" + "9" * 25,
    ):
        assert bus.mom("policy", "set", "queue:late", wrong, code=1).stderr.count("\n") == 1


def test_what_is_missing_is_told_in_the_words_of_the_command(bus):
    assert "--client-id" in bus.mom("receive", "/topic/x", "--durable", "d", code=2).stderr
    assert "--durable" in bus.mom("receive", "/topic/x", "--shared", code=2).stderr


def test_a_topic_is_created_shown_and_deleted(bus):
    assert bus.json("topic", "create", "/topic/fixed", "-s", "b")["agent"] == "b/topic:fixed"
    with jms.connect(bus.urls["a"]) as context:
        context.consumer("/topic/*,/topic/fixed")
        found = bus.json("topic", "show", "fixed")
    assert (found["topic"], found["created"], found["servers"]) == ("topic:fixed", "b", ["a"])
    assert found["subscribers"] == {"a": 1, "b": 0} and found["subscriptions"] == []
    assert "topic:fixed" in bus.mom("topic", "list").stdout
    assert bus.json("topic", "move", "fixed", "--to", "a")["created"] == "a"
    assert "nobody has created" in bus.mom("topic", "move", "unheard-of", "--to", "a", code=1).stderr
    refused = bus.mom("topic", "delete", "fixed", code=1, stdin="n\n")
    assert "Delete topic:fixed? [y/N]" in refused.output
    bus.mom("topic", "delete", "fixed", "--yes")
    bus.settle()
    assert "nobody has created topic:fixed" in bus.mom("topic", "delete", "fixed", code=1, stdin="y\n").stderr
    assert "is no topic" in bus.mom("topic", "create", "fix.*", "-s", "a", code=1).stderr


def test_a_queue_moves_to_another_server_and_its_clients_go_on(bus):
    with jms.connect(bus.urls["a"]) as there, jms.connect(bus.urls["b"]) as here:
        for number in range(200):
            there.send("/queue/nomad", f"{number}")
        there.flush()
        consumer = here.consumer("/queue/nomad")
        assert consumer.receive(timeout=5).body == "0"
        found = bus.json("queue", "move", "nomad", "--to", "b")
        assert (found["from"], found["to"]) == ("a", "b")
        for number in range(200, 210):
            there.send("/queue/nomad", f"{number}")
        assert [consumer.receive(timeout=5).body for _ in range(209)] == [f"{number}" for number in range(1, 210)]
    assert bus.json("queue", "show", "nomad")["home"] == "b"
    assert "lives on b already" in bus.mom("queue", "move", "nomad", "--to", "b", code=1).stderr
    assert "by --to a server" in bus.mom("queue", "move", "nomad", code=2).stderr


def test_a_server_is_drained_and_takes_work_again(bus):
    bus.mom("send", "-s", "a", "/queue/drained", "1")
    found = bus.mom("server", "drain", "a", "--to", "b", "--timeout", "30", "-o", "json", code=None)
    assert all(each["kind"] not in ("queue", "subscription") for each in json.loads(found.stdout or "[]"))
    assert bus.json("queue", "show", "drained")["home"] == "b"
    assert "a is drained: connect to another server" in bus.mom("send", "-s", "a", "/queue/q", "1", code=1).stderr
    bus.mom("queue", "create", "drained-new", "-s", "b")
    bus.mom("server", "drain", "a", "--end")
    bus.mom("send", "-s", "a", "/queue/drained-newer", "1")
    assert bus.json("queue", "show", "drained-newer")["home"] == "a"


def test_a_durable_subscription_moves_to_another_server(bus):
    bus.mom("subscription", "create", "trip", "--topic", "trips", "--client-id", "ann", "-s", "a")
    bus.mom("send", "-s", "a", "/topic/trips", "1")
    assert bus.json("subscription", "move", "trip", "--client-id", "ann", "--to", "b")["to"] == "b"
    bus.mom("send", "-s", "a", "/topic/trips", "2")
    until = time.monotonic() + 20
    while bus.json("subscription", "show", "trip", "--client-id", "ann")["messages"] < 2:
        assert time.monotonic() < until
    assert bus.json("subscription", "show", "trip", "--client-id", "ann")["home"] == "b"


def test_groups_are_listed_and_who_asks_for_another_one_is_told(bus):
    assert bus.json("group", "list") == []
    assert "there is no group ledger" in bus.mom("group", "show", "ledger", code=6).stderr
    assert "there is no group ledger" in bus.mom("group", "remove", "ledger", "--yes", code=6).stderr
    assert "no group \\n" + "x" * 100 in bus.mom("group", "show", "\n" + "x" * 5000, code=6).stderr


@pytest.mark.parametrize(
    "words",
    [
        ("group", "remove", "ledger", "--yes", "--member"),
        ("queue", "move", "one", "other", "--where"),
        ("dlq", "retry", "one", "--where"),
        *(("connections", "close", option) for option in ("--user", "--client-id", "--host")),
    ],
)
def test_an_empty_text_that_says_which_does_not_mean_all(bus, words):
    assert "is empty: say which, or leave the option out" in bus.mom(*words, "", code=2).stderr
