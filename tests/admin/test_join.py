"""`mom server join`, and a newcomer that a file brings, on a bus of real processes."""

import os
import signal
import threading
import time
from math import inf

import pytest

from mombroker import jms
from mombroker.admin import supervisor
from mombroker.net import config
from mombroker.store import folder
from tests.admin.processes import Processes, free_ports, write_topology
from tests.admin.test_topology_change import digest, number

SECRET = "a secret of the bus, long enough"


@pytest.fixture(scope="module")
def bus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bus")
    file = write_topology(folder, {"x": "abc"}, {})
    text = file.read_text().replace('name = "test"', 'name = "test"\nsecret_file = "bus.secret"')
    file.write_text(text)
    (folder / "bus.secret").write_text(SECRET)
    (folder / "bus.secret").chmod(0o600)
    made = Processes(file)
    made.listen("abc")
    made.up()
    assert made.all_up(), file.read_text()
    yield made
    made.down()


def at(bus, name):
    return config.load(bus.file).servers[name].listen


@pytest.fixture
def machine(bus, tmp_path, monkeypatch):
    """Another folder, with the secret of the bus."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bus.secret").write_text(SECRET)
    (tmp_path / "bus.secret").chmod(0o600)
    return tmp_path


def words(bus, name, port, *more, by="b", secret="bus.secret"):
    where = ["--bus", at(bus, by), "--listen", f"127.0.0.1:{port}", "--secret", secret]
    return ["server", "join", name, *where, *more]


def test_what_is_wrong_is_one_sentence_and_changes_nothing(bus, machine):
    before, (port,) = digest(bus), free_ports(1)
    (machine / "other.secret").write_text("another secret, long enough too")
    (machine / "other.secret").chmod(0o600)
    (machine / "used").mkdir()
    (machine / "used" / "store.sqlite").write_bytes(b"")
    stomp = config.load(bus.file).servers["a"].stomp
    for given, sentence in [
        (words(bus, "e", port, secret="other.secret"), "the bus has another secret than the file of --secret: name"),
        (words(bus, "e", port)[:-2], "the bus has a secret, and --secret is not given: name the file of its"),
        (words(bus, "e", port, secret="none"), "--secret: there is no file none: copy that of the bus"),
        (words(bus, "c", port), "the bus has a server c since its first revision: choose another name"),
        (words(bus, "e", port, "--behind", "bb"), "the bus test has no server bb: it has a, b, c"),
        (words(bus, "e", port, "--domain", "x"), "the bus has a domain x, whose clocks a new member would change"),
        (words(bus, "e", port, "--data", "used"), "used has a store already: give e another folder"),
        (words(bus, "e", at(bus, "a").rpartition(":")[2]), "address already in use"),
        (words(bus, "e", port, "--stomp", stomp), f"--stomp {stomp} cannot be used here"),
        (["server", "join", "e", "--bus", f"127.0.0.1:{port}", "--listen", f"127.0.0.1:{port}"], "nobody answers at"),
        (["server", "join", "e", "--bus", stomp, "--listen", f"127.0.0.1:{port}"], "whoever is at"),
        (words(bus, "e e", port), "cannot be a server's name"),
    ]:  # fmt: skip
        result = bus.mom(*given, code=1)
        assert sentence in result.output and len(result.output.splitlines()) == 1, result.output
    assert digest(bus) == before
    assert {path.name for path in machine.iterdir()} == {"bus.secret", "other.secret", "used"}


class Load:
    """A client of each of these servers, which publishes to a topic that all of them hear, as soon as it has heard what
    it sent before. A connection that is lost is not made again."""

    def __init__(self, bus, names):
        servers = config.load(bus.file).servers
        self.urls = [f"stomp://{servers[name].stomp}" for name in names]
        self.delays, self.errors, self.done = [], [], threading.Event()
        self.threads = [threading.Thread(target=self._work, args=(url,)) for url in self.urls]

    def _work(self, url):
        try:
            with jms.connect(url, reconnect=0) as context:
                consumer, producer, number = context.consumer("/topic/load"), context.producer("/topic/load"), 0
                while not self.done.is_set():
                    number, start = number + 1, time.perf_counter()
                    producer.send(f"{url} {number}")
                    while (message := consumer.receive(timeout=60)).body != f"{url} {number}":
                        assert message.body
                    self.delays.append((time.time(), time.perf_counter() - start))
        except Exception as error:
            self.errors.append(error)

    def __enter__(self):
        for each in self.threads:
            each.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        for each in self.threads:
            each.join()

    def until_more(self, count):
        end = len(self.delays) + count
        while len(self.delays) < end and not self.errors:
            time.sleep(0.05)

    def p99(self, begin, end):
        found = sorted(took for at, took in self.delays if begin <= at < end)
        return found[len(found) * 99 // 100] if found else 0.0


def test_a_server_joins_and_nobodys_connection_drops(bus, machine):
    """It hears what is published from then on, and is heard; what is in a queue elsewhere comes to it."""
    port, stomp = free_ports(2)
    with jms.connect(f"stomp://{config.load(bus.file).servers['c'].stomp}") as context:
        context.send("/queue/early", "from c").wait()
    with Load(bus, "abc") as load:
        load.until_more(50)
        begin = time.time()
        told = bus.run(*words(bus, "e", port, "--stomp", f"127.0.0.1:{stomp}", "--no-start"))
        again = bus.mom(*words(bus, "e", port), code=1).stderr
        assert again == (
            "Error: e has joined the bus test already, and does not run: start it by `mom serve bus.toml --server e`\n"
        )
        assert "bus.toml is there already: delete it" in bus.mom(*words(bus, "f", port), code=1).stderr
        edit = machine / "bus.toml"
        assert config.load(edit).revision == number(bus)
        edit.write_text(edit.read_text().replace('data = "e"', 'data = "e"\nanonymous = true'))
        here = Processes(edit)
        server = here.serve("e")
        try:
            while "e serves" not in (machine / "e.txt").read_text():
                time.sleep(0.05)
            with jms.connect(f"stomp://127.0.0.1:{stomp}") as context:
                heard, early = context.consumer("/topic/load"), context.consumer("/queue/early")
                assert early.receive(timeout=60).body == "from c"
                urls = set()
                while urls != set(load.urls):
                    urls.add(heard.receive(timeout=60).body.partition(" ")[0])
                end = time.time()
                load.until_more(50)
            again = bus.mom(*words(bus, "e", port), code=1).stderr
            assert "e is on the bus test already, and runs: see `mom status bus.toml --server e`" in again
            here = bus.mom("status", "bus.toml", code=5).stdout
            assert "server lost" not in here and "if a is another machine's, ask there" in here
        finally:
            server.terminate()
            server.wait()
    assert not load.errors
    assert told.stdout.splitlines() == [
        "e is on the bus test, behind b; its topology file is bus.toml", "start it by `mom serve bus.toml --server e`",
    ]  # fmt: skip
    times = (load.p99(0.0, begin), load.p99(begin, end), load.p99(end, inf))
    print("p99 before, meanwhile, after: {:.4f} s, {:.4f} s, {:.4f} s".format(*times))
    assert bus.json("topology", "history")[0]["changes"] == [
        f"+ server e at 127.0.0.1:{port}", "+ domain b-e: b and e by fifo",
    ]  # fmt: skip


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.long)])
def test_a_newcomer_begins_though_it_and_its_sponsor_are_killed_meanwhile(tmp_path, kills):
    """At any moment from when it has made its folder until it serves: it has nothing then, or all that it needs."""
    file = write_topology(tmp_path, {"x": "ab"}, {})
    bus = Processes(file)
    bus.up()
    try:
        begin, (port,) = (text := file.read_text()).index("[domains."), free_ports(1)
        server = f'[servers.c]\nlisten = "127.0.0.1:{port}"\ndata = "c"\n'
        file.write_text(f'{text[:begin]}{server}{text[begin:]}\n[domains.y]\nservers = ["b", "c"]\n')
        bus.mom("topology", "apply", "--yes")
        while "revision 2 of the topology is in force" not in (tmp_path / "b" / supervisor.LOG).read_text():
            time.sleep(0.05)
        for at in range(kills):
            newcomer = bus.serve("c")
            while not (tmp_path / "c" / folder.LOCK).exists():
                assert newcomer.poll() is None
                time.sleep(0.002)
            time.sleep(0.3 * at / kills)
            if at % 2 and (sponsor := folder.holder(tmp_path / "b" / folder.LOCK)):
                os.kill(sponsor, signal.SIGKILL)
            newcomer.kill()
            newcomer.communicate()
        newcomer = bus.serve("c")
        try:
            while "serves clients from now on" not in (log := (tmp_path / "c.txt").read_text()):
                assert newcomer.poll() is None, log
                time.sleep(0.05)
        finally:
            newcomer.terminate()
            newcomer.communicate()
        assert "begun by itself" not in log
    finally:
        bus.down()


def test_a_server_joins_a_bus_whose_links_use_tls(tmp_path, monkeypatch):
    """Its certificate is made before it is on the bus, and says which bus that is."""
    home, there = tmp_path / "home", tmp_path / "there"
    home.mkdir()
    there.mkdir()
    file = write_topology(home, {"x": "ab"}, {})
    made = Processes(file)
    made.run("tls", "init", str(file))
    text = file.read_text().replace('name = "test"', 'name = "test"\nca = "tls/ca.pem"')
    for name in "ab":
        text = text.replace(f"[servers.{name}]\n", f'[servers.{name}]\ncertificate = "tls/{name}.pem"\n')
    file.write_text(text)
    made.up()
    try:
        assert made.all_up()
        assert "write it as NAME=HOST" in made.mom("tls", "init", "--joins", "e", code=1).output
        assert "is a server of this file" in made.mom("tls", "init", "--joins", "a=127.0.0.1", code=1).output
        made.run("tls", "init", str(file), "--joins", "e=127.0.0.1")
        for name in ("ca.pem", "a.pem", "e.pem"):
            (there / name).write_bytes((home / "tls" / name).read_bytes())
        monkeypatch.chdir(there)
        where = ["--bus", at(made, "b"), "--listen", f"127.0.0.1:{free_ports(1)[0]}", "--no-start"]
        for given, sentence in [
            ([], "see its log; if its links use TLS, give --ca and --certificate"),
            (["--ca", "ca.pem"], "links by TLS need both"),
            (["--ca", "ca.pem", "--certificate", "a.pem"], "a.pem names mom:test/a, not e"),
            (["--ca", "none.pem", "--certificate", "e.pem"], "cannot read none.pem"),
        ]:
            result = made.mom("server", "join", "e", *where, *given, code=1)
            assert sentence in result.output and len(result.output.splitlines()) == 1, result.output
        made.run("server", "join", "e", *where, "--ca", "ca.pem", "--certificate", "e.pem")
        here = Processes(there / "bus.toml")
        server = here.serve("e")
        try:
            while "e serves" not in (there / "e.txt").read_text():
                time.sleep(0.05)
            here.run("queue", "create", "far", "--server", "e")  # the registry is a, behind b
            assert [row["destination"] for row in here.json("queue", "list", "--server", "e")] == ["queue:far"]
        finally:
            server.terminate()
            server.wait()
    finally:
        made.down()


def test_a_bus_of_one_server_and_one_domain_grows(tmp_path, monkeypatch):
    """Its first domain stays beside the one in which the other joins, until a plan puts both into one."""
    alone = Processes(write_topology(tmp_path, {"x": "a"}, {}))
    alone.up()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    try:
        joins = ["server", "join", "b", "--bus", at(alone, "a"), "--listen", f"127.0.0.1:{free_ports(1)[0]}"]
        alone.run(*joins, "--data", str(tmp_path / "b"))
        now = alone.mom("topology", "export").stdout
        new = tmp_path / "new.toml"
        new.write_text(now[: now.index("[domains")] + '[domains.x]\nservers = ["a", "b"]\nordering = "matrix"\n')
        alone.mom("topology", "apply", str(new), "--yes")
        made = [row["changes"] for row in alone.json("topology", "history")]
        assert made[0] == ["~ domain x: + b", "- domain a-b"] and made[1][1] == "+ domain a-b: a and b by fifo"
    finally:
        alone.mom("down", str(tmp_path / "there" / "bus.toml"), code=None)
        alone.down()
