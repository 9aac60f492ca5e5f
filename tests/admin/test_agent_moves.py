"""An agent moves between live servers, under load and through kills of all of them; and back home, while it works."""

import threading
import time
from itertools import count

from mombroker.core.errors import MomError
from mombroker.net import adminclient, config
from tests.admin.processes import Processes, write_topology
from tests.admin.test_moves import until


class Sender(threading.Thread):
    """Sends numbered notes by one server; of those that were not answered it is not known whether they were sent."""

    def __init__(self, bus, server):
        super().__init__(daemon=True)
        self.topology, self.server = config.load(bus.file), server
        self.sent, self.unknown, self.over = [], set(), threading.Event()

    def run(self):
        numbers = count()
        while not self.over.is_set():
            try:
                with adminclient.connect(self.topology, self.server, 5.0) as client:
                    while not self.over.is_set():
                        text = f"{self.server}{next(numbers)}"
                        try:
                            client.request("send", to=["ann"], type="clerks.Note", fields={"text": text})
                        except adminclient.NoAnswer:
                            self.unknown.add(text)
                            raise
                        self.sent.append(text)
                        time.sleep(0.002)
            except MomError:
                time.sleep(0.05)


def test_an_agent_moves_under_load_through_kills_of_all_servers(tmp_path):
    bus = Processes(write_topology(tmp_path, {"x": "abc"}, {"ann": "a", "bob": "b"}))
    servers = {server: bus.serve(server) for server in "abc"}
    try:
        until(bus.all_up)
        senders = [Sender(bus, server) for server in "abc"]
        for sender in senders:
            sender.start()
        for to, kills in (("b", "ab"), ("c", "cb"), ("a", "ac"), ("c", "")):
            until(lambda to=to: bus.mom_any("agent", "move", "ann", "--to", to, "--no-wait").exit_code == 0)
            for server in kills:
                time.sleep(0.05)
                servers[server].kill()
                servers[server].communicate()
                servers[server] = bus.serve(server)
            until(lambda to=to: lives(bus, to))
        for sender in senders:
            sender.over.set()
            sender.join()
        report = bus.settle()
        assert report["clean"] and report["judged_pct"] == 100
        notes = bus.json("agent", "show", "ann")["fields"]["notes"]
        assert len(notes) == len(set(notes))
        for sender in senders:
            got = [note for note in notes if note.startswith(sender.server)]
            assert len(sender.sent) > 100
            assert [note for note in got if note not in sender.unknown] == sender.sent
            numbers = [int(note[1:]) for note in got]
            assert numbers == sorted(numbers)
        bus.mom("agent", "send", "-s", "b", "a/ann", "clerks.Note", "text=by its id", 'to=["bob"]')
        bus.settle()
        assert bus.json("agent", "show", "bob")["fields"]["notes"] == ["by its id again"]
        said = bus.mom("agent", "move", "a/ann", "--to", "b")
        assert "ann" in said.stdout and lives(bus, "b")
        assert "lives on b already" in bus.mom("agent", "move", "ann", "--to", "b", code=1).stderr
        assert bus.settle()["clean"]
    finally:
        for process in servers.values():
            process.kill()
            process.communicate()


def lives(bus, server):
    """As that server says: it is there, and all of it."""
    topology = config.load(bus.file)
    try:
        with adminclient.connect(topology, server) as client:
            return not client.request("agent", agent="a/ann")["moving"]
    except MomError:
        return False


def test_a_server_is_drained_of_its_agents_and_leaves(tmp_path):
    """Whoever lives elsewhere by then is still found by the id that names the server that has left."""
    bus = Processes(write_topology(tmp_path, {"x": "abc"}, {"ann": "c", "bob": "b"}))
    bus.up()
    try:
        for number in range(10):
            bus.mom("agent", "send", "ann", "clerks.Note", f"text=n{number}")
        text = bus.file.read_text()
        without = text[: text.index("[servers.c]")] + text[text.index("[domains.x]") :]
        before, ann, after = without.partition('[[agents]]\nname = "ann"\nserver = "c"\nclass = "clerks:Clerk"\n')
        wanted = before.replace('["a", "b", "c"]', '["a", "b"]') + after
        bus.mom("server", "stop", "b")
        bus.mom("agent", "move", "ann", "--to", "a", "--no-wait")
        bus.file.write_text(wanted)
        plan = bus.mom("topology", "plan", code=1).stdout
        assert ann and "> agent ann: c -> a" in plan and "c leaves, and holds agent ann" in plan
        bus.file.write_text(text)
        bus.mom("server", "start", "b")
        assert "c holds nothing" in bus.mom("server", "drain", "c", "--to", "a", "--timeout", "120").stderr
        until(bus.all_up)
        bus.file.write_text(wanted)
        assert "- agent ann on c" in bus.mom("topology", "apply", "--yes").stdout
        bus.mom("agent", "send", "-s", "b", "c/ann", "clerks.Note", "text=later")
        expected = [*(f"n{number}" for number in range(10)), "later"]
        until(lambda: bus.json("agent", "show", "ann")["fields"]["notes"] == expected)
    finally:
        bus.down()
