"""What owns a client's socket, a thread: it dials, reads, writes what is left to write, beats, and dials again."""

from __future__ import annotations

import selectors
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from time import monotonic

from mombroker.core.errors import sentence
from mombroker.jms.connection import Lock
from mombroker.jms.errors import ConnectionLost, InvalidUrl
from mombroker.jms.machine import Machine
from mombroker.jms.url import Url
from mombroker.stomp.frames import FrameError

DIAL_S = 10.0  # for a connection, and again for the login
WAITS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # after having tried all servers in vain
READ_BYTES = 1 << 18
LATE = 2.5  # of the other side's beats


class Beats:
    """When we must speak, and when the other side has been silent for too long. All in seconds."""

    def __init__(self, send: float, expect: float, now: float):
        self.send, self.expect = send, expect
        self.said = self.heard = now

    def must_speak(self, now: float) -> bool:
        return self.send > 0 and now - self.said >= self.send

    def silent(self, now: float) -> bool:
        return self.expect > 0 and now - self.heard > LATE * self.expect

    def wait(self, now: float) -> float | None:
        """Until one of these can become true."""
        times = [self.said + self.send] if self.send else []
        times += [self.heard + LATE * self.expect] if self.expect else []
        return max(0.0, min(times) - now) + 0.001 if times else None


class Ready:
    """Waits for a socket, or until somebody has written to `woken`."""

    def __init__(self, sock: socket.socket, woken: socket.socket):
        self.sock, self.woken = sock, woken
        self.selector = selectors.DefaultSelector()
        self.selector.register(sock, selectors.EVENT_READ)
        self.selector.register(woken, selectors.EVENT_READ)

    def __enter__(self) -> Ready:
        return self

    def __exit__(self, *_: object) -> None:
        self.selector.close()

    def wait(self, writes: bool, seconds: float | None) -> bool:
        """Whether the socket can be read now; it also returns when it can be written, if that is asked for."""
        self.selector.modify(self.sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if writes else 0))
        events = {key.fileobj: mask for key, mask in self.selector.select(seconds)}
        if self.woken in events:
            self.woken.recv(4096)
        return bool(events.get(self.sock, 0) & selectors.EVENT_READ)


class Transport:
    """`lock` guards the machine and all that is here but the dialling.

    changed    called, under the lock, when the machine has changed
    patience   seconds after which it gives up to reconnect
    """

    def __init__(
        self,
        urls: list[Url],
        machine: Machine,
        lock: Lock,
        changed: Callable[[], None],
        patience: float,
    ):
        self.urls, self.machine, self.lock, self.changed, self.patience = urls, machine, lock, changed, patience
        self.sock: socket.socket | None = None
        self.rest = bytearray()  # to be written
        self.beats = Beats(0, 0, 0)
        self.up_at = 0.0
        self._ending = threading.Event()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, name="mombroker-jms", daemon=True)
        self.thread.start()

    def end(self) -> None:
        """Stop, whatever is under way."""
        self._ending.set()
        self._poke()

    def now(self) -> float:
        """What the server's clock says by now, as far as its greeting tells; 0.0: nothing."""
        time = self.machine.time
        return time / 1_000 + monotonic() - self.up_at if time else 0.0

    def flush(self) -> None:
        """Write what the machine has put out, as far as the system takes it now."""
        output = self.machine.output
        if output and self.sock is not None:
            idle = not self.rest
            for data in output:
                self.rest += data
            self._write(self.sock)
            if self.rest and idle:
                self._poke()
        output.clear()

    def _poke(self) -> None:
        try:
            self._wake.send(b"x")
        except OSError:
            pass  # it has enough to wake up from, or has ended

    def _write(self, sock: socket.socket) -> None:
        rest = self.rest
        try:
            while rest:
                del rest[: sock.send(memoryview(rest)[:READ_BYTES].tobytes())]
                self.beats.said = monotonic()
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError:
            pass  # the reader finds out, and why

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Whatever ends it is what every caller gets, those who wait and those who come later."""
        why = ""
        try:
            why = self._serve()
        finally:
            error = sys.exception()
            self._give_up(why if error is None else f"the client's own thread has failed: {sentence(error)}")
            self._wake.close()
            self._woken.close()

    def _serve(self) -> str:
        """Connect, again and again; why it does so no more."""
        at = failures = rounds = 0
        first, since = True, monotonic()
        while not self._ending.is_set():
            reason, was_up = self._visit(self.urls[at])
            with self.lock:
                self.changed()
                if self.machine.state == "over":
                    return "closed"
            if was_up:
                first, failures, rounds, since = False, 0, 0, monotonic()
                continue
            at = (at + 1) % len(self.urls)
            failures += 1
            if failures % len(self.urls):
                continue
            if first or monotonic() - since > self.patience:
                return f"no server can be reached: {reason}"
            self._pause(WAITS_S[min(rounds, len(WAITS_S) - 1)])
            rounds += 1
        return "closed"

    # -- how it waits ----------------------------------------------------------------------------------------------

    def _dial(self, url: Url) -> socket.socket:
        return dial(url)

    def _pause(self, seconds: float) -> None:
        self._ending.wait(seconds)

    def _ready(self, sock: socket.socket) -> Ready:
        return Ready(sock, self._woken)

    # -- a connection ----------------------------------------------------------------------------------------------

    def _give_up(self, why: str) -> None:
        with self.lock:
            if self.machine.state != "over":
                self.machine.give_up(ConnectionLost(why))
            self.changed()

    def _visit(self, url: Url) -> tuple[str, bool]:
        """One connection; why it ended, and whether the login was answered."""
        try:
            sock = self._dial(url)
        except OSError as error:
            return f"{url}: {error}", False
        with sock:
            with self.lock:
                if self.machine.state == "over":  # somebody has closed it while this dialled
                    return "closed", False
                self.sock, self.beats = sock, Beats(0, 0, monotonic())
                self.machine.opened(url.host, url.user, url.passcode)
                self.flush()
            reason, was_up = f"{url}: ", False
            try:
                reason += self._talk(sock)
            except (OSError, FrameError) as error:
                reason += str(error)
            with self.lock:
                was_up = self.machine.up and not self.machine.elsewhere
                self.sock = None
                self.rest.clear()
                self.machine.lost(reason)
                self.changed()
            return reason, was_up

    def _talk(self, sock: socket.socket) -> str:
        """Read and write until the connection ends; why it did."""
        login_until = monotonic() + DIAL_S
        with self._ready(sock) as ready:
            wait: float | None = DIAL_S
            while True:
                readable = ready.wait(bool(self.rest), wait)
                with self.lock:
                    if self._ending.is_set():
                        return "closed"
                    if readable and (reason := self._read(sock)):
                        return reason
                    now = monotonic()
                    if self.machine.state == "login" and now > login_until:
                        return f"it did not answer the login within {DIAL_S:g} s"
                    if self.beats.silent(now):
                        return f"nothing was heard for {now - self.beats.heard:.0f} s"
                    if self.beats.must_speak(now) and not self.rest:
                        self.rest += b"\n"
                    self.flush()
                    if self.rest:
                        self._write(sock)
                    wait = self.beats.wait(now) if self.machine.up else max(0.0, login_until - now) + 0.001

    def _read(self, sock: socket.socket) -> str:
        """Take what has come; why the connection has ended, if it has."""
        machine = self.machine
        more = True
        while more:
            try:
                data = sock.recv(READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not data:
                return machine.farewell or "the server closed the connection"
            self.beats.heard = monotonic()
            was_up = machine.up
            machine.receive(data)
            if machine.up and not was_up:
                self.up_at = self.beats.heard
                send, expect = machine.beats
                self.beats = Beats(send / 1_000, expect / 1_000, self.beats.heard)
            if machine.farewell:
                return machine.farewell
            more = isinstance(sock, ssl.SSLSocket) and sock.pending() > 0
        self.changed()
        return ""


def dial(url: Url) -> socket.socket:
    """A connection, which does not block. Raises OSError."""
    sock = socket.create_connection((url.host, url.port), DIAL_S)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if url.tls:
            sock = url.trust().wrap_socket(sock, server_hostname=url.host)
        sock.setblocking(False)
    except (OSError, InvalidUrl) as error:
        sock.close()
        raise OSError(str(error)) from error
    return sock
