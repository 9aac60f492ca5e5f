"""The operator's side of the listen port: blocking requests from a process without a reactor."""

import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mombroker.core.errors import MomError, PeerError, PeerRefused
from mombroker.core.topology import Topology
from mombroker.net import wire
from mombroker.net.handshake import ADMIN, NONCE_BYTES, dialer
from mombroker.store.folder import TOKEN

NAME = "mom"  # of the operator, in the handshake
CHUNK = 1 << 16


class NotRunning(MomError):
    """Nobody listens at the server's address."""


class AdminClient:
    """A connection to a running server, as its operator. Raises MomError with one sentence.

    timeout   seconds for the connection, the login, and each answer
    """

    def __init__(self, server: str, host: str, port: int, token: str, timeout: float = 10.0):
        self.server, self.where = server, f"{host}:{port}"
        self._numbers = 0
        self._decoder = wire.Decoder()
        self._frames: list[Any] = []
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise NotRunning(
                f"{server} does not answer at {self.where} ({_reason(error)}); start it by `mom serve` or `mom up`"
            ) from None
        try:
            self._login(token)
        except BaseException:
            self.close()
            raise

    def _login(self, token: str) -> None:
        handshake = dialer(NAME, self.server, ADMIN, token.encode(), os.urandom(NONCE_BYTES))
        frame = None
        while True:
            try:
                out = handshake.send(frame)
            except StopIteration:
                break
            except (PeerError, PeerRefused) as error:
                raise MomError(f"no login at {self.where}: {error}") from None
            for each in out:
                self._send(each)
            frame = self._receive()
        self._decoder.limit = wire.LINK_LIMIT

    def request(self, verb: str, **args: Any) -> dict[str, Any]:
        """Ask the server; its answer comes after the commit that it speaks of. Raises MomError when it refuses."""
        self._numbers += 1
        self._send([self._numbers, verb, args])
        match self._receive():
            case [self._numbers, True, dict(result)]:
                return result
            case [self._numbers, False, str(sentence)]:
                raise MomError(sentence)
            case _:
                raise MomError(f"{self.server} at {self.where} answers something else than was asked")

    def _send(self, frame: Any) -> None:
        try:
            self._socket.sendall(wire.encode(frame))
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

    def _gone(self, reason: str) -> MomError:
        return MomError(f"{self.server} at {self.where} did not answer ({reason}); see its log")

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(topology: Topology, server: str, timeout: float = 10.0) -> AdminClient:
    """To a server of this machine: its token is read from its data folder."""
    at = topology.servers.get(server)
    if at is None:
        raise MomError(f"the topology file has no server {server!r}; it has {', '.join(topology.servers)}")
    path = Path(at.data) / TOKEN
    try:
        token = path.read_text().strip()
    except FileNotFoundError:
        raise NotRunning(
            f"there is no {path}: {server} has never run here; start it by `mom serve` or `mom up`"
        ) from None
    except OSError as error:
        raise MomError(f"cannot read {path}: {_reason(error)}; run as the user that runs {server}") from None
    return AdminClient(server, at.host, at.port, token, timeout)


def _reason(error: OSError) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
