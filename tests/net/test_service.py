"""Two or three whole agent servers on loopback TCP with their files."""

import socket
import threading
from types import SimpleNamespace

import pytest

from mombroker.core.errors import MomError, StoreError, StoreFailed
from mombroker.core.events import StoreSize
from mombroker.core.limits import Limits
from mombroker.net import adminclient, wire
from mombroker.net.adminclient import AdminClient, NoAccess, NotRunning
from mombroker.net.committer import Split
from mombroker.net.connection import Times
from mombroker.net.files import stderr
from mombroker.net.handshake import VERSION
from mombroker.net.node import PRUNE_EVERY_S, Node
from mombroker.net.pool import Pool
from tests.net.town import Town


@pytest.fixture
def town(tmp_path):
    made = []

    def make(*args, **rest):
        made.append(Town(tmp_path, *args, **rest))
        return made[-1]

    yield make
    for each in made:
        each.down()
        each.pass_time()
        assert each.reactor.getDelayedCalls() == []
        each.reactor.removeAll()


def texts(start, stop):
    return [f"t{at}" for at in range(start, stop)]


def test_a_message_goes_each_way_and_every_link_has_one_connection(town):
    t = town().up()
    t.send("a", "Note", "box-b", text="to b")
    t.send("b", "Note", "box-a", text="to a")
    t.until_got("b", ["to b"])
    t.until_got("a", ["to a"])
    assert [len(t.node(name).links._by_number) for name in "ab"] == [1, 1]
    assert t.ask("a", "status")["peers"] == [{"peer": "b", "domain": "d", "state": "up", "reason": "", "faults": 0}]


def test_messages_larger_than_all_buffers_pass(town):
    t = town().up()
    t.down("b")
    large = [letter * 700_000 for letter in "xyz"]
    for text in large:
        t.send("a", "Note", "box-b", text=text)
    t.up("b")
    t.until_got("b", large)


def test_messages_pass_a_router(town):
    t = town("abc", domains={"x": "ab", "y": "bc"}).up()
    for text in texts(0, 5):
        t.send("a", "Note", "box-c", text=text)
    t.until_got("c", texts(0, 5))
    assert t.ask("b", "status")["forwarded"] == 5


def test_what_is_sent_to_a_stopped_server_waits_for_it(town):
    t = town().up()
    t.send("a", "Note", "box-b", text="t0")
    t.until_got("b", ["t0"])
    t.down("b")
    for text in texts(1, 4):
        t.send("a", "Note", "box-b", text=text)
    assert t.ask("a", "why")["waits"][0]["packets"] == 3
    t.until(lambda: t.ask("a", "status")["peers"][0]["state"] == "down")
    assert t.ask("a", "status")["peers"][0]["reason"].startswith("b cannot be reached at")
    t.up("b")
    t.until_got("b", texts(0, 4))
    assert "b is connected again" in t.lines["a"]


def test_a_crash_of_either_end_loses_and_doubles_nothing(town):
    t = town().up()
    sent = 0
    for victim in "baab":
        for _ in range(5):
            t.send("a", "Note", "box-b", text=f"t{sent}")
            sent += 1
        t.crash(victim)
        t.up(victim)
    t.until_got("b", texts(0, sent))


def test_both_ends_send_at_once_through_dropped_connections(town):
    """Whatever is cut, each side gets all, in order, once: stored packets are sent again, doubles are dropped."""
    t = town().up()
    for at in range(12):
        for name, other in ("ab", "ba"):
            t.send(name, "Note", f"box-{other}", text=f"t{at}")
        for conn in list(t.node("ab"[at % 2]).links._by_number.values()):
            conn.abort()
    t.until_got("a", texts(0, 12))
    t.until_got("b", texts(0, 12))


def test_commits_in_a_writer_thread(town):
    t = town()
    pool = Pool(1, "test")
    pool.start()
    t.committer = lambda: Split(t.reactor, pool)
    t.up()
    for at in range(10):
        t.send("a", "Note", "box-b", text=f"t{at}")
    t.until_got("b", texts(0, 10))
    t.crash("b")
    t.up("b")
    t.until_got("b", texts(0, 10))
    t.down()
    pool.leave()


def test_timers_and_deferred_functions_come_back_also_after_a_restart(town):
    t = town("a", domains={}).up()
    t.send("a", "Later", "box-a", seconds=0.01, text="rang")
    t.until_got("a", ["rang"])
    t.send("a", "Work", "box-a", value=21)
    t.until_got("a", ["rang", 42])
    t.send("a", "Later", "box-a", seconds=1, text="rang late")
    t.down("a")
    t.up("a")
    t.until_got("a", ["rang", 42, "rang late"])


def test_a_link_that_idles_is_closed_and_opened_again(town):
    t = town(times=Times(tick=0.02, silent_ticks=500, idle_ticks=5, retry_first=0.01)).up()
    for text in texts(0, 3):
        t.send("a", "Note", "box-b", text=text)
        t.until(lambda: not t.node("a").links._by_number and not t.node("b").links._by_number)
    t.until_got("b", texts(0, 3))
    assert not [line for name in "ab" for line in t.lines[name] if "serves" not in line]


def test_two_secrets(town):
    t = town()
    t.secrets["b"] = b"another one's secret"
    t.up()
    t.send("a", "Note", "box-b", text="x")
    text = "a and b have different secrets; `secret_file` must hold the same on both"
    t.until(lambda: f"closed the connection to b: b refuses: {text}" in t.lines["a"])
    assert f"closed the connection from 127.0.0.1: {text}" in t.lines["b"]
    assert t.ask("a", "status")["problems"][0].startswith(f"b is refused: b refuses: {text}")
    assert not any(word in line for name in "ab" for line in t.lines[name] for word in ("secret'", "another"))
    t.down("b")
    t.secrets["b"] = b"secret of the town"
    t.up("b")
    t.node("a").links.neighbours["b"].timer.reset(0)  # do not wait for the slow attempt
    t.until_got("b", ["x"])
    assert t.ask("a", "status")["problems"] == []


@pytest.mark.parametrize("dialer", "ab")
def test_a_store_that_was_wiped_is_refused_with_the_remedy_whoever_dials(town, dialer):
    t = town().up()
    t.send("a", "Note", "box-b", text="x")
    t.until_got("b", ["x"])
    t.down("b")
    for path in (t.folder / "b").iterdir():
        path.unlink()
    t.up("b")
    other = "b" if dialer == "a" else "a"
    t.send(dialer, "Note", f"box-{other}", text="y")
    for name in "ab":
        t.until(lambda name=name: any("run `mom domain reset` for b" in line for line in t.lines[name]))
        (peer,) = t.ask(name, "status")["peers"]
        assert peer["state"] == "down" and "run `mom domain reset` for b" in peer["reason"]
        assert "run `mom domain reset` for b" in t.ask(name, "status")["problems"][0]
    assert t.got(other) == []


def stranger(t, name="a"):
    """A plain socket to a server's port."""
    peer = socket.create_connection(("127.0.0.1", t.ports[name]))
    peer.setblocking(False)
    return peer


def answer(t, peer):
    """All that comes until the server closes."""
    got = bytearray()

    def closed():
        try:
            data = peer.recv(65536)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        got.extend(data)
        return not data

    t.until(closed)
    peer.close()
    return list(wire.Decoder().feed(bytes(got)))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "a frame of 1195725856 bytes is over the limit of 4096"),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes is over the limit of 4096"),
        (b"\0\0\0\2\xc1\xc1", "a frame is not valid msgpack"),
        (
            wire.encode(["mom", 99, "whatever"]),
            f"the dialer speaks version 99 of the link protocol, a speaks {VERSION}",
        ),
        (wire.encode(["mom", VERSION, "peer", "zoe", "bob", bytes(16)]), "this is a, not bob"),
    ],
)
def test_strangers_are_turned_away_and_nobody_else_notices(town, data, reason):
    t = town().up()
    t.send("a", "Note", "box-b", text="t0")
    peer = stranger(t)
    peer.sendall(data)
    (frame,) = answer(t, peer)
    assert frame[0] == "refused" and reason in frame[2]
    assert any(f"closed the connection from 127.0.0.1: {reason}" in line for line in t.lines["a"])
    t.send("a", "Note", "box-b", text="t1")
    t.until_got("b", texts(0, 2))


def test_a_slow_login_is_closed(town):
    t = town(times=Times(login=0.2)).up()
    peer = stranger(t)
    peer.sendall(b"\0\0")
    assert answer(t, peer) == [["refused", "", "no login within 0.2 s"]]


def test_a_half_open_peer_is_found_by_its_silence(town):
    """a talks to b through a cable that is then cut without a word; b itself lives on."""
    t = town(times=Times(tick=0.05, silent_ticks=6, retry_first=0.01, retry_last=0.1)).up()
    cable = Cable(t.ports["b"])
    t.hosts["a"].shared.topology.servers["b"].port = cable.port
    t.send("a", "Note", "box-b", text="t0")
    t.until_got("b", ["t0"])
    cable.cut.set()
    t.send("a", "Note", "box-b", text="t1")
    t.until(lambda: any("no sign of life" in line for line in t.lines["a"]))
    t.hosts["a"].shared.topology.servers["b"].port = t.ports["b"]
    t.until_got("b", texts(0, 2))
    cable.close()


class Cable:
    """Forwards one port to another until it is cut; then it swallows all, and closes nothing."""

    def __init__(self, port):
        self.target = port
        self.cut = threading.Event()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.sockets = [self.server]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                one, _ = self.server.accept()
                other = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            self.sockets += [one, other]
            for pair in (one, other), (other, one):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source, sink):
        while True:
            try:
                data = source.recv(65536)
                if not data:
                    if not self.cut.is_set():
                        sink.close()
                    return
                if not self.cut.is_set():
                    sink.sendall(data)
            except OSError:
                return

    def close(self):
        for each in self.sockets:
            each.close()


# -- starting ------------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_refused(town):
    t = town("a", domains={})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        t.ports["a"] = taken.getsockname()[1]
        with pytest.raises(MomError, match=r"a cannot listen on 127.0.0.1:\d+: .*in use.*; stop whoever uses that"):
            t.up()
    t.ports["a"] = 0
    t.up()  # the store was closed again


def test_a_store_that_is_in_use_is_refused(town):
    t = town("a", domains={}).up()
    again = Town(t.folder, "a", domains={})
    with pytest.raises(StoreError, match="is in use by process"):
        again.up()


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        (b"  \n", "is empty: make one"),
        (b"short", "has 5 bytes, less than 16: make one"),
        (None, "there is no secret_file .* head -c"),
    ],
)
def test_a_secret_that_is_none_is_refused(town, secret, reason):
    t = town("a", domains={})
    t.secrets["a"] = secret or b"x"
    make = t.topology

    def topology(me):
        made = make(me)
        if secret is None:
            (t.folder / "secret-a").unlink()
        return made

    t.topology = topology
    with pytest.raises(MomError, match=reason):
        t.up()


def test_a_secret_that_others_may_read_is_named(town):
    t = town("a", domains={})
    make = t.topology

    def topology(me):
        made = make(me)
        (t.folder / "secret-a").chmod(0o644)
        return made

    t.topology = topology
    t.up()
    assert any("other users may read the secret in" in line for line in t.lines["a"])


# -- the operator --------------------------------------------------------------------------------------------------


def test_the_operator_needs_the_token(town):
    t = town("a", domains={}).up()
    assert (t.folder / "a" / "token").stat().st_mode & 0o777 == 0o600
    (t.folder / "a" / "token").write_text("guessed")
    with pytest.raises(MomError, match="a refuses: the token is not that of the running server a"):
        t.ask("a", "status")
    assert not any("guessed" in line for line in t.lines["a"])


def test_requests_are_answered_in_order_and_refusals_are_sentences(town):
    t = town("a", domains={}).up()
    assert t.ask("a", "status")["server"] == "a"
    with pytest.raises(MomError, match="no such request: dance; known are"):
        t.ask("a", "dance")
    with pytest.raises(MomError, match="needs agent, a text"):
        t.ask("a", "agent")


def test_many_requests_of_one_connection_are_all_answered(town):
    """More than may be open at once: the rest waits in the socket."""
    t = town("a", domains={}).up()
    client = []

    def work():
        token = (t.folder / "a" / "token").read_text().strip()
        with AdminClient("a", "127.0.0.1", t.ports["a"], token) as made:
            for at in range(300):
                made._send([at, "status", {}])
            client.append([made._receive()[:2] for _ in range(300)])

    thread = threading.Thread(target=work)
    thread.start()
    t.until(lambda: client)
    thread.join()
    assert client == [[[at, True] for at in range(300)]]


def test_a_request_out_of_shape_closes_the_connection(town):
    t = town("a", domains={}).up()
    errors = []

    def work():
        token = (t.folder / "a" / "token").read_text().strip()
        with AdminClient("a", "127.0.0.1", t.ports["a"], token) as client:
            try:
                client._send(["no number", "status", {}])
                client._receive()
            except MomError as error:
                errors.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    t.until(lambda: errors)
    thread.join()
    assert "did not answer (it closed the connection)" in errors[0]


def test_the_operator_may_ask_for_the_end(town):
    t = town("a", domains={}).up()
    asked = []
    t.node("a")._quit = lambda: asked.append(True)
    assert t.ask("a", "stop") == {"stopping": "a"}
    t.until(lambda: asked)


def test_a_server_that_does_not_run_is_said_to_be_down(tmp_path):
    t = Town(tmp_path, "a", domains={})
    with pytest.raises(NotRunning, match="a has never run here; start it by `mom server start a`"):
        adminclient.connect(t.topology("a"), "a")
    with socket.create_server(("127.0.0.1", 0)) as free:
        t.ports["a"] = free.getsockname()[1]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "store.sqlite").touch()
    with pytest.raises(NotRunning, match="^a does not run; start it by"):
        adminclient.connect(t.topology("a"), "a")
    (tmp_path / "a" / "token").write_text("x")
    with pytest.raises(NotRunning, match=r"a does not answer at 127.0.0.1:\d+ \(Connection refused\); start it by"):
        adminclient.connect(t.topology("a"), "a")
    with pytest.raises(MomError, match="the topology file has no server 'z'; it has a"):
        adminclient.connect(t.topology("a"), "z")


def test_a_server_whose_token_cannot_be_shown_is_not_said_to_be_down(tmp_path):
    t = Town(tmp_path, "a", domains={})
    with socket.create_server(("127.0.0.1", 0)) as there:
        t.ports["a"] = there.getsockname()[1]
        with pytest.raises(NoAccess, match="the folder .* of a is not there: if a is another machine's, ask there; if"):
            adminclient.connect(t.topology("a"), "a")
        (tmp_path / "a").mkdir()
        with pytest.raises(NoAccess, match="somebody listens at .* but a has no token in .*; give the topology file"):
            adminclient.connect(t.topology("a"), "a")
        (tmp_path / "a" / "store.sqlite").touch()
        with pytest.raises(NoAccess, match="a runs, but its token .* is gone; start it again"):
            adminclient.connect(t.topology("a"), "a")
        (tmp_path / "a" / "token").mkdir()
        with pytest.raises(NoAccess, match=r"cannot read .*token \(Is a directory\); run as the user that runs a"):
            adminclient.connect(t.topology("a"), "a")


def test_somebody_else_at_the_port_is_not_taken_for_the_server(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve():
            peer, _ = other.accept()
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            peer.close()

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(MomError, match="did not answer"):
            AdminClient("a", "127.0.0.1", other.getsockname()[1], "token")


def test_a_server_that_hangs_is_not_waited_for_without_end(tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(MomError, match=r"did not answer \(no answer in time\)"),
    ):
        AdminClient("a", "127.0.0.1", other.getsockname()[1], "token", timeout=0.1)


@pytest.mark.interpreted
def test_after_a_failed_commit_nothing_leaves_and_the_exit_code_is_3(town):
    t = town("a", domains={}).up()
    node = t.node("a")

    def fail():
        raise StoreFailed("the disk is full: make room")

    node.store.finish = fail
    with pytest.raises(MomError, match="did not answer"):
        t.send("a", "Note", "box-a", text="lost")
    assert t.hosts["a"].code == 3 and t.lines["a"][-1] == "the disk is full: make room"
    del t.hosts["a"].nodes["a"]


@pytest.mark.interpreted
def test_an_error_of_the_program_ends_it_with_another_code_so_that_it_is_started_again(town):
    t = town("a", domains={}).up()

    def fail(ready, now):
        raise RuntimeError("our bug")

    t.node("a").server.committed = fail
    with pytest.raises(MomError, match="did not answer"):
        t.send("a", "Note", "box-a", text="lost")
    assert t.hosts["a"].code == 70 and "our bug" in t.lines["a"][-1]
    del t.hosts["a"].nodes["a"]


def test_a_line_of_the_log_is_bounded_and_says_nothing_to_a_terminal(capsys):
    stderr("a")("peer \x1b[2J\u202e says\n" + "x" * 10**7)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.rstrip("\n").isprintable() and len(said) < 21_000
    assert r"a peer \x1b[2J\u202e says | xxx" in said


def test_a_look_at_the_file_that_met_a_commit_is_made_again_soon():
    """A server that always commits lets its file shrink, too."""
    waits, tidied = [], []
    driver = SimpleNamespace(committing=1, now=lambda: 0)
    store = SimpleNamespace(prune_log=lambda *args: 0, tidy=lambda: bool(tidied.append(1)), sync_mark=lambda: None)
    shared = SimpleNamespace(
        topology=SimpleNamespace(log={}), reactor=SimpleNamespace(callLater=lambda wait, _: waits.append(wait))
    )
    server = SimpleNamespace(limits=Limits(), alarms=SimpleNamespace(last=StoreSize(0)))
    node = SimpleNamespace(shared=shared, server=server, store=store, driver=driver, _tidy=None)
    Node._tidy(node)
    assert not tidied and waits.pop() < 1
    driver.committing = 0
    Node._tidy(node)
    assert tidied and waits.pop() == PRUNE_EVERY_S


def test_the_status_tells_what_rows_take_and_what_the_files_do(town):
    t = town().up()
    status = t.ask("a", "status")
    files = sum((t.folder / "a" / f"store.sqlite{log}").stat().st_size for log in ("", "-wal"))
    assert status["store_bytes"] > 0 and 0 < status["store_file_bytes"] <= files
