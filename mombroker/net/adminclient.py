"""The operator's side of the listen port: blocking requests from a process without a reactor."""

import getpass
import os
import re
import select
import socket
import ssl
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mombroker.core.errors import MomError, PeerError, PeerRefused
from mombroker.core.topology import Server, Topology, is_loopback
from mombroker.net import wire
from mombroker.net.handshake import ADMIN, JOIN, NONCE_BYTES, dialer
from mombroker.store.folder import STORE, TOKEN

NAME = "mom"  # of the operator in the handshake, before who runs this
CHUNK = 1 << 16
KNOCK_S = 1.0


def _operator() -> str:
    """Who runs this, as the system says, for the log of the server: it is told, not proved."""
    try:
        user = re.sub(r"[^A-Za-z0-9_.-]", "_", getpass.getuser())
    except (OSError, KeyError, ImportError):
        return NAME
    return f"{NAME}.{user}"[:64]


class NotRunning(MomError):
    """Nobody listens at the server's address."""


class NoAnswer(MomError):
    """The connection ended before the answer: what was asked for may be done, or not."""


class NoAccess(MomError):
    """The server runs, or may run, but we cannot show its token."""


class AdminClient:
    """A connection to a running server, as its operator, or as server `me` that wants to join its bus. Raises MomError
    with one sentence.

    key       the token of the server, or the secret of the bus
    timeout   seconds for the connection, the login, and each answer
    tls       of a bus whose links use TLS: those that sign its certificates, and its name
    """

    def __init__(
        self,
        server: str,
        host: str,
        port: int,
        key: str | bytes,
        timeout: float = 10.0,
        me: str = "",
        tls: tuple[str, str] | None = None,
    ):
        self.server, self.where = server, f"{host}:{port}"
        self._me = me
        self._numbers = 0
        self._socket: socket.socket
        self._decoder = wire.Decoder(any_keys=True)  # of dicts in the fields of an agent
        self._frames: list[Any] = []
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except OSError as error:
            remedy = f"start it by `mom server start {server}`" if server else "give the address of one that runs"
            raise NotRunning(
                f"{server or 'nobody'} {'does not answer' if server else 'answers'} at {self.where} "
                f"({_reason(error)}); {remedy}"
            ) from None
        try:
            if tls is not None:
                self._secure(*tls)
            self._login(key.encode() if isinstance(key, str) else key)
        except BaseException:
            self.close()
            raise

    def _secure(self, ca: str, bus: str) -> None:
        from cryptography import x509

        from mombroker.net import peertls

        try:
            self._socket = peertls.client_context(ca).wrap_socket(self._socket)
            found = peertls.uris(x509.load_der_x509_certificate(self._socket.getpeercert(True) or b""))
            peertls.check_name(bus, self.server, found)
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message
            raise NoAccess(
                f"the certificate at {self.where} is not good ({why}): see [bus] ca, and `certificate`"
            ) from None
        except ssl.SSLError:
            raise NoAccess(
                f"whoever listens at {self.where} does not speak TLS: [bus] ca of the file is not its"
            ) from None
        except PeerRefused as error:
            raise NoAccess(f"no login at {self.where}: {error}") from None
        except OSError as error:
            raise self._gone(_reason(error)) from None

    def _login(self, key: bytes) -> None:
        role = JOIN if self._me else ADMIN
        handshake = dialer(self._me or _operator(), self.server, role, key, os.urandom(NONCE_BYTES))
        frame = None
        while True:
            try:
                out = handshake.send(frame)
            except StopIteration as end:
                self.server = end.value.peer
                break
            except (PeerError, PeerRefused) as error:
                kind = NoAccess if isinstance(error, PeerRefused) else MomError
                raise kind(f"no login at {self.where}: {error}") from None
            for each in out:
                self._send(each)
            frame = self._receive()
        self._decoder.limit = wire.LINK_LIMIT

    def request(self, verb: str, **args: Any) -> dict[str, Any]:
        """Ask the server; its answer comes after the commit that it speaks of. Raises MomError when it refuses."""
        self.ask(verb, **args)
        return self.answer()

    def ask(self, verb: str, **args: Any) -> None:
        """Ask, and do not wait: `answer` does, once `answered`."""
        self._numbers += 1
        self._send([self._numbers, verb, args])

    def answered(self) -> bool:
        """Something has come, or the connection is gone."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(self._frames or select.select([self._socket], (), (), 0)[0])

    def answer(self) -> dict[str, Any]:
        """To what was asked. Raises MomError when it refuses."""
        match self._receive():
            case [self._numbers, True, dict(result)]:
                return result
            case [self._numbers, False, str(sentence)]:
                raise MomError(sentence)
            case _:
                raise MomError(f"{self.server} at {self.where} answers something else than was asked")

    def _send(self, frame: Any) -> None:
        try:
            data = wire.encode(frame)
        except (TypeError, ValueError, OverflowError) as error:
            raise MomError(f"this cannot be sent: {error}") from None
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._gone(_reason(error)) from None

    def _receive(self) -> Any:
        try:
            while not self._frames:
                data = self._socket.recv(CHUNK)
                if not data:
                    raise self._gone("it closed the connection")
                self._frames += [frame for frame in self._decoder.feed(data) if frame is not None]
        except PeerError as error:
            raise self._gone(str(error)) from None
        except OSError as error:
            raise self._gone(_reason(error)) from None
        return self._frames.pop(0)

    def _gone(self, reason: str) -> NoAnswer:
        plain = self._me and not isinstance(self._socket, ssl.SSLSocket)
        more = "; if its links use TLS, give --ca and --certificate" if plain else ""
        return NoAnswer(f"{self.server or 'whoever is'} at {self.where} did not answer ({reason}); see its log{more}")

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(topology: Topology, server: str, timeout: float = 10.0) -> AdminClient:
    """To a server of this machine: its token is read from its data folder. Of one with replicas, to that which leads;
    SERVER/REPLICA is one of them, whoever leads."""
    at = topology.servers.get(server) or topology.process(server)
    if at is None:
        raise MomError(f"the topology file has no server {server!r}; it has {', '.join(topology.servers)}")
    if at.replicas and not at.replica:
        return _leader(topology, at, timeout)
    return _connect(topology, at, timeout)


def _leader(topology: Topology, server: Server, timeout: float) -> AdminClient:
    """To the replica that leads: all of this machine are asked. Raises MomError."""
    why: MomError | None = None
    silent = True
    for view in server.views():
        try:
            client = _connect(topology, view, timeout)
        except MomError as error:
            why = why or error
            continue
        try:
            if client.request("replicas")["leads"]:
                return client
        except MomError as error:
            why = error
        else:
            silent = False
        client.close()
    if not silent:
        raise NotRunning(f"no replica of {server.name} leads just now: ask again in a second, see `mom replica status`")
    raise why or NotRunning(f"no replica of {server.name} runs here")


def _connect(topology: Topology, at: Server, timeout: float) -> AdminClient:
    path, server = Path(at.data) / TOKEN, at.label
    try:
        token = path.read_text().strip()
    except FileNotFoundError:
        raise _no_token(at, path) from None
    except (OSError, ValueError) as error:
        why = _reason(error) if isinstance(error, OSError) else "it is no text"
        raise NoAccess(f"cannot read {path} ({why}); run as the user that runs {server}") from None
    return AdminClient(at.name, at.host, at.port, token, timeout, tls=tls_of(topology))


def ready(topology: Topology, label: str, timeout: float) -> bool:
    """Does a server work, or one of its replicas, which needs one that leads?"""
    try:
        with connect(topology, label, timeout) as client:
            if "/" not in label:
                client.request("status")
                return True
            found = client.request("replicas")
            return bool(found["leads"] or found["leader"] not in ("", found["replica"]))
    except MomError:
        return False


def no_access(topology: Topology, label: str) -> str:
    """Why a server that runs cannot be asked from here; empty if that is not so."""
    try:
        connect(topology, label).close()
    except NoAccess as error:
        return str(error)
    except MomError:
        pass
    return ""


def tls_of(topology: Topology) -> tuple[str, str] | None:
    """What a program of the operator needs for the links' ports of this bus."""
    return (topology.ca, topology.name) if topology.ca else None


def _no_token(at: Server, path: Path) -> MomError:
    """Why there is no token: the server has not made one yet, or somebody removed it."""
    known = (path.parent / STORE).exists()
    try:
        socket.create_connection((at.host, at.port), KNOCK_S).close()
    except OSError:
        start = f"start it by `mom server start {at.label}`"
        if known:
            return NotRunning(f"{at.label} does not run; {start}")
        return NotRunning(
            f"there is no {path}: {at.label} has never run here; {start}, or bring its folder back if it was removed"
        )
    if known:
        return NoAccess(f"{at.name} runs, but its token {path} is gone; start it again, and it makes a new one")
    if is_loopback(at.host) and not path.parent.exists():
        return NoAccess(
            f"somebody listens at {at.listen}, and the folder {path.parent} of {at.name} is not there: if {at.name} is "
            f"another machine's, ask there; if it runs here, give the topology file that it runs with, or, if the "
            f"folder was removed, stop it and bring that back"
        )
    return NoAccess(
        f"somebody listens at {at.listen}, but {at.name} has no token in {path.parent}; give the topology file that "
        f"{at.name} runs with, or run this on its machine"
    )


def _reason(error: OSError) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
