"""One HTTP connection: requests in, one after the other; answers out, at the pace of whoever reads them."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any
from typing import Protocol as TypingProtocol

import h11
from OpenSSL import SSL
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Protocol

from mombroker.gateway import tls
from mombroker.gateway.connection import Client
from mombroker.gateway.times import Timers, Times
from mombroker.gateway.web.http import HEADERS, Answer, Request, said

HEAD_BYTES = 16 << 10  # of a request: its first line and headers
HEADERS_MOST = 100  # of a request: each takes its time, and a stranger's read is full of them
BODY_BYTES = 16 << 10  # of a request; kept is that of a POST alone
LARGE_BYTES = 256 << 10  # of one whose user may send so much
WRITE_BYTES = 64 << 10  # of an answer, given to the system at once
IDLE_S = 60.0  # between two requests
ANSWER_S = 60.0  # from a request to the last byte of its answer
_BLANK = re.compile(rb"\n\r?\n")  # the end of a head


class Owner(TypingProtocol):
    """The port, as its connections see it."""

    reactor: Any
    times: Times

    def serve(self, visitor: Visitor, request: Request) -> None: ...
    def large(self, request: Request) -> bool: ...
    def closed(self, visitor: Visitor) -> None: ...
    def say(self, host: str, line: str) -> None: ...


class Visitor(Protocol):
    """A connection. While a request is being answered nothing is read; of a request at most HEAD_BYTES, BODY_BYTES and
    one read are kept. It must be whole within the time of a login, and its answer taken within ANSWER_S. Where a body
    of LARGE_BYTES is of use, it is read once its user has logged in and may send it.
    """

    transport: Any

    def __init__(self, web: Owner, host: str, tls: bool):
        self.web, self.host, self.tls = web, host, tls
        self.lost = False
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._request: Request | None = None  # that is being answered, or of which the body still comes
        self._body = bytearray()
        self._begun = self._answering = self._closing = False
        self._held = False  # a large body is not read yet
        self._out: memoryview[int] = memoryview(b"")
        self._timers = Timers(web.reactor.callLater)
        self._socket: Any = None  # the transport below TLS
        self._client: Client | None = None  # what the connection has become

    # -- Twisted's side ----------------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        self._socket = self.transport.transport if self.tls else self.transport
        self._socket.bufferSize = HEAD_BYTES
        with suppress(OSError):  # it may be gone again already
            self._socket.setTcpNoDelay(True)
            self._socket.setTcpKeepAlive(True)
        self._timers.set("request", self.web.times.login, self._late)

    def dataReceived(self, data: bytes) -> None:
        if self._client is not None:
            self._client.dataReceived(data)
        elif not self._closing:
            if not self._begun:
                self._begun = True
                self._timers.unset("request")
                self._timers.set("request", self.web.times.login, self._late)
            self._http.receive_data(data)
            self._read()

    def connectionLost(self, reason: Any = ConnectionDone) -> None:
        self.lost = True
        self._timers.clear()
        if self._client is not None:
            self._client.connectionLost(reason)
            return
        if self.tls and not self._begun and reason.check(SSL.Error):
            self.web.say(self.host, tls.failure(self.host, reason.value, "http"))
        self.web.closed(self)

    def resumeProducing(self) -> None:
        """All that was written is with the system."""
        if self._socket.disconnecting:  # TLS wants to close it, which waits for us
            self._socket.unregisterProducer()
        elif self._out:
            piece, self._out = self._out[:WRITE_BYTES], self._out[WRITE_BYTES:]
            self.transport.write(bytes(piece))
        else:
            self._socket.unregisterProducer()
            self._answered()

    def pauseProducing(self) -> None: ...

    def stopProducing(self) -> None: ...

    # -- a request ---------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            while not (self._answering or self._closing or self._held):
                if self._http.their_state is h11.IDLE and self._many():
                    sentence = f"a request here has {HEADERS_MOST} headers at most"
                    self.answer(said(431, sentence, connection="close"))
                    return
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                self._take(event)
        except h11.RemoteProtocolError as error:
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                self.answer(said(error.error_status_hint, f"{error}: write a request of HTTP/1.1", connection="close"))
            else:
                self._end()

    def _many(self) -> bool:
        """Whether what comes next has more headers than a request may have: before they are taken apart."""
        data, _ = self._http.trailing_data
        end = _BLANK.search(data)
        return data.count(b"\n", 0, end.start() if end else len(data)) > HEADERS_MOST

    def _take(self, event: Any) -> None:
        if isinstance(event, h11.Request):
            headers: dict[str, str] = {}
            for name, value in ((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers):
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
            self._request = Request(event.method.decode("ascii"), event.target.decode("latin-1"), headers)
            self._expect(self._request)
        elif isinstance(event, h11.Data):
            assert self._request is not None, "the body of no request"
            if self._request.method == "POST":
                self._body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert self._request is not None, "the end of no request"
            self._busy()
            self.web.serve(self, replace(self._request, body=bytes(self._body)))
        else:
            self._end()

    def _expect(self, request: Request) -> None:
        """A body, if it is not too large, and not of chunks, which may be of one byte each."""
        headers = request.headers
        if "transfer-encoding" in headers:
            self.answer(said(411, "the body of a request here has a Content-Length", connection="close"))
        elif (size := int(headers.get("content-length", "0"))) <= BODY_BYTES:
            self._welcome()
        elif size <= (most := LARGE_BYTES if self.web.large(request) else BODY_BYTES):
            self._held = True
            self._socket.pauseProducing()
            self.web.serve(self, replace(request, whole=False))
        else:
            self.answer(said(413, f"a request here has {most} bytes of body at most", connection="close"))

    def go_on(self) -> None:
        """The large body may come."""
        if not (self.lost or self._closing or self._answering):
            self._held = False
            self._welcome()
            self._socket.resumeProducing()
            self._read()

    def _welcome(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            self.transport.write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))

    def _busy(self) -> None:
        self._answering = True
        self._timers.unset("request")
        self._timers.set("answer", ANSWER_S, self.abort)
        self._socket.pauseProducing()

    def answer(self, answer: Answer) -> None:
        """To the request that was served."""
        if self.lost or self._closing:
            return
        if not self._answering:
            self._busy()
        head = {"content-type": answer.type, "content-length": str(len(answer.body)), **HEADERS, **answer.headers}
        http = self._http
        data = http.send(h11.Response(status_code=answer.status, headers=list(head.items()))) or b""
        if self._request is None or self._request.method != "HEAD":
            data += http.send(h11.Data(data=answer.body)) or b""
        data += http.send(h11.EndOfMessage()) or b""
        self._out = memoryview(data)
        self._socket.registerProducer(self, False)

    def _answered(self) -> None:
        """The answer is with the system: the next request may come, if one may."""
        self._timers.unset("answer")
        self._request, self._answering, self._begun, self._held = None, False, False, False
        self._body = bytearray()
        http = self._http
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            self._end()
            return
        http.start_next_cycle()
        self._timers.set("request", IDLE_S, self._late)
        self._socket.resumeProducing()
        self._read()

    def become(self, client: Client, response: list[tuple[str, str]]) -> None:
        """The request is granted: from here on the connection speaks another protocol (101, with these headers)."""
        self.transport.write(self._http.send(h11.InformationalResponse(status_code=101, headers=response)))
        self._timers.clear()
        self._client = client
        self.web.closed(self)
        client.makeConnection(self.transport)
        early, _ = self._http.trailing_data
        self._socket.resumeProducing()
        if early:
            client.dataReceived(bytes(early))

    # -- the end -----------------------------------------------------------------------------------------------------

    def _late(self) -> None:
        if self._begun and self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.answer(said(408, f"no request within {self.web.times.login:g} s", connection="close"))
        else:
            self._end()

    def _end(self) -> None:
        """Let the last bytes be read. A socket with unread input would be reset, so that goes nowhere."""
        if self._closing:
            return
        self._closing = True
        self._timers.clear()
        self._socket.resumeProducing()
        if self.tls:
            self.transport.loseConnection()
        else:
            self.transport.loseWriteConnection()
        self._timers.set("close", self.web.times.close, self.abort)

    def abort(self) -> None:
        """Close at once; what the transport holds does not leave."""
        if not self.lost:
            self.transport.abortConnection()
