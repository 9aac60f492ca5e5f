"""`mom topology apply`, `status` and `abort` where domains change, on a bus of real processes at work."""

import json
import threading
import time

import pytest

from mombroker import jms
from mombroker.net.adminclient import AdminClient
from tests.admin.processes import Processes, free_ports, write_topology

LAYOUTS = [({"x": "abc"}, "ks"), ({"x": "ac", "y": "cb"}, ""), ({"w": "abc"}, "daisy"), ({"x": "ab", "y": "bc"}, "")]


@pytest.fixture(scope="module")
def bus(tmp_path_factory):
    """Three servers in two domains, with listeners for clients."""
    file = write_topology(tmp_path_factory.mktemp("bus"), {"x": "ab", "y": "bc"}, {"ann": "a", "cat": "c"})
    made = Processes(file)
    made.listen("abc")
    made.up()
    yield made
    made.down()


def wanted(bus: Processes, domains: dict[str, str], ordering: str) -> None:
    """Write a file with these domains."""
    text, tables = bus.file.read_text(), ""
    for name, members in domains.items():
        tables += f"[domains.{name}]\nservers = {json.dumps(list(members))}\n"
        tables += f'ordering = "{ordering}"\n' if ordering else ""
    bus.file.write_text(text[: text.index("[domains.")] + tables + text[text.index("[[agents]]") :])


def number(bus: Processes) -> int:
    return bus.json("topology", "history")[0]["revision"]


def test_the_domains_change_while_clients_and_agents_talk(bus):
    """Whoever is connected stays connected, and nothing is lost, repeated or taken out of order."""
    stop, sent, got, failed = threading.Event(), [], [], []

    def talk():
        with jms.connect(bus.urls["a"], reconnect=0) as context:
            while not stop.wait(0.001):
                sent.append(str(len(sent)))
                context.send("/queue/talk", sent[-1])
            context.flush(30)
            context.send("/queue/talk", "end").wait(30)

    def listen():
        with jms.connect(bus.urls["c"], reconnect=0) as context:
            consumer = context.consumer("/queue/talk")
            while (message := consumer.receive(30)) is not None and message.body != "end":
                got.append(message.body)

    def guarded(work):
        try:
            work()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (talk, listen)]
    for thread in threads:
        thread.start()
    was = number(bus)
    for at, (domains, ordering) in enumerate(LAYOUTS):
        bus.mom("agent", "send", "ann", "clerks.Note", f"text=n{at}", 'to=["c/cat"]')
        wanted(bus, domains, ordering)
        assert bus.mom("topology", "apply", "--yes").stdout.endswith(f"revision {was + 1 + at} is in force\n")
        rows = bus.json("topology", "status")
        assert [(row["revision"], row["phase"], row["gate"]) for row in rows] == [(was + 1 + at, "", 0)] * 3
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed and got == sent and len(sent) > 100
    report = bus.settle()
    assert report["clean"] and report["judged_pct"] == 100
    bus.down()
    assert bus.json("check")["clean"]
    for server in "abc":
        bus.mom("store", "verify", str(bus.file.parent / server))
    bus.up()
    assert bus.json("agent", "show", "cat")["fields"]["notes"] == [f"n{at} again" for at in range(len(LAYOUTS))]


def test_an_apply_that_loses_its_answer_says_that_it_may_be_done(bus, monkeypatch):
    """As when the registry is killed at that moment."""
    was, ask = number(bus), AdminClient.request

    def cut(client, verb, **args):
        answer = ask(client, verb, **args)
        if verb == "apply_topology":
            raise client._gone("it closed the connection")
        return answer

    monkeypatch.setattr(AdminClient, "request", cut)
    wanted(bus, {"y": "abc"}, "rst")
    said = bus.mom("topology", "apply", "--yes", code=1).stderr
    assert "it may be done all the same: `mom topology history` tells" in said
    while {(row["revision"], row["phase"]) for row in bus.json("topology", "status")} != {(was + 1, "")}:
        time.sleep(0.1)


def test_a_change_is_refused_while_a_server_of_it_is_down_and_nothing_has_changed(bus):
    was = number(bus)
    wanted(bus, {"x": "abc"}, "matrix")
    bus.mom("server", "stop", "c")
    assert [row["phase"] for row in bus.json("topology", "status", code=5)] == ["", "", "unknown"]
    told = bus.mom("topology", "apply", "--yes", code=1)
    assert "c must be up for this: start what is down, or it is refused" in told.stdout
    assert "c does not answer" in told.stderr and "nothing has changed" in told.stderr
    assert "no change of the domains is under way" in bus.mom("topology", "abort", code=1).stderr
    bus.mom("server", "start", "c")
    assert {row["revision"] for row in bus.json("topology", "status")} == {was}
    for _ in range(20):  # its links may take longer to be there than the registry waits for an answer
        done = bus.mom_any("topology", "apply", "--yes", "--no-wait", "-o", "json")
        if done.exit_code == 0:
            break
        assert "c does not answer" in done.stderr
    found = json.loads(done.stdout)
    assert (found["revision"], found["over"]) == (was + 1, False)
    bus.settle()


def test_a_server_leaves_while_the_others_work_with_all_that_it_holds_if_that_is_wanted(bus):
    was = number(bus)
    wanted(bus, {"x": "ac"}, "")
    text = bus.file.read_text()
    bus.file.with_name("before.toml").write_text(text)
    begin = text.index("[servers.b]")
    bus.file.write_text(text[:begin] + text[text.index("[servers.c]") :])
    bus.mom("send", "-s", "c", "/queue/of-c", "kept")
    with jms.connect(bus.urls["b"], reconnect=0) as context:
        said = bus.mom("topology", "apply", "--yes", code=1).stderr
        assert "b cannot leave, and holds 1 connection of clients" in said and "--drop" in said
        context.send("/queue/of-b", "given up").wait(30)
        said = bus.mom("topology", "apply", "--yes", code=1).stderr
        assert "b cannot leave, and holds queue:of-b" in said
        shown = bus.mom("topology", "plan", "--drop").stdout
        assert "b leaves, and gives up queue:of-b with 1 message" in shown
        result = bus.mom("topology", "apply", "--yes", "--drop")
        with pytest.raises(jms.JmsError, match="leaving its bus"):
            while True:
                context.send("/queue/of-c", "late").wait(30)
    assert result.stdout.endswith(f"revision {was + 1} is in force\n")
    assert [row["server"] for row in bus.json("topology", "status")] == ["a", "c"]
    with jms.connect(bus.urls["a"]) as context:
        assert context.consumer("/queue/of-c").receive(30).body == "kept"
        context.send("/queue/of-b", "anew").wait(30)  # the name is free
        assert context.consumer("/queue/of-b").receive(30).body == "anew"
    log = bus.file.parent / "b" / "log.txt"
    while "has left the bus" not in log.read_text():
        time.sleep(0.1)


def test_a_server_that_joined_and_never_begins_is_named_and_taken_out_again(bus):
    was, text = number(bus), bus.file.read_text()
    (port,) = free_ports(1)
    begin = text.index("[domains.")
    bus.file.write_text(f'{text[:begin]}[servers.d]\nlisten = "127.0.0.1:{port}"\ndata = "d"\n{text[begin:]}')
    wanted(bus, {"x": "ad", "y": "dc"}, "")
    assert "start d, and apply" in bus.mom("topology", "apply", "--yes", "--no-wait").stdout
    (row,) = [row for row in bus.json("topology", "status") if row["phase"] == "joining"]
    assert (row["server"], row["waits_for"]) == ("d", ["its first start, by `mom server start d`"])
    said = bus.mom("topology", "abort", "--yes")
    assert "d joined the bus, and did not begin" in said.stderr and "d is out of the bus" in said.stdout
    assert number(bus) == was + 2 and [row["server"] for row in bus.json("topology", "status")] == ["a", "c"]
    bus.file.write_text(text)
    assert "no change of the domains is under way" in bus.mom("topology", "abort", "--yes", code=1).stderr


def test_one_apply_attaches_a_newcomer_and_changes_the_domains_that_it_is_to_be_in(bus):
    """It waits until the newcomer runs; what was cut short in between goes on when the file is applied again."""
    was = number(bus)
    text, (port, stomp) = bus.file.read_text(), free_ports(2)
    begin = text.index("[domains.")
    server = f'[servers.d]\nlisten = "127.0.0.1:{port}"\ndata = "d"\nstomp = "127.0.0.1:{stomp}"\nanonymous = true\n'
    bus.file.write_text(text[:begin] + server + text[begin:])
    wanted(bus, {"x": "ad", "y": "dc"}, "")
    plan = bus.json("topology", "plan")
    assert (plan["steps"], plan["kind"], plan["newcomers"], plan["refused"]) == (2, "freeze", ["d"], "")
    assert "d joins first, in a domain of its own" in bus.mom("topology", "plan").stdout
    assert "start d, and apply" in bus.mom("topology", "apply", "--yes", "--no-wait").stdout and number(bus) == was + 1
    applied = bus.popen("topology", "apply", "--yes")
    try:
        started = bus.serve("d")
        said, why = applied.communicate(timeout=120)
        assert applied.returncode == 0 and said.endswith(f"revision {was + 2} is in force\n"), why
        with jms.connect(bus.urls["a"]) as one, jms.connect(f"stomp://127.0.0.1:{stomp}") as other:
            one.send("/queue/for-d", "over the new domains").wait(30)
            assert other.consumer("/queue/for-d").receive(30).body == "over the new domains"
        assert {row["revision"] for row in bus.json("topology", "status")} == {was + 2}
    finally:
        started.terminate()
        started.communicate()
