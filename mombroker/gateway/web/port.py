"""The HTTP port of one server: who may ask, and who answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

from twisted.internet import protocol

from mombroker.broker.access.guard import denied
from mombroker.broker.access.permission import BROWSE, BUS, MANAGE
from mombroker.core.errors import MomError
from mombroker.core.requests import Verb
from mombroker.core.strangers import Newcomers
from mombroker.gateway.listener import Gateway
from mombroker.gateway.ports import Address
from mombroker.gateway.session import Sessions
from mombroker.gateway.web import metrics, static, websocket
from mombroker.gateway.web.api import PLAN, PREFIX, Api, May
from mombroker.gateway.web.connection import Visitor
from mombroker.gateway.web.http import Answer, Request, as_json, said
from mombroker.gateway.web.session import OverWebSocket

MAX_VISITORS = 256  # connections; the oldest goes
LOGIN = "/login"  # where a browser asks its user to log in, though nobody need to

Result = dict[str, Any] | str
Steps = Generator[tuple[str, dict[str, Any]], dict[str, Any], Answer]  # verb and arguments -> its reply; at the end:
Handler = Callable[[Request, str], Steps]  # and the user


class Web:
    """ask        a verb of the server, its arguments, who gets the reply, or the sentence of a refusal, who asks, and
               from where
    verbs      all that there are
    may        who may do what
    refuses    why the server takes no work; empty if it does
    sessions   what is spoken over WebSocket, and `protocols`, how that is called there, the best first
    origins    of pages that may, beside our own
    aside      what can be asked beside the verbs
    """

    def __init__(
        self,
        gateway: Gateway,
        ask: Callable[[str, dict[str, Any], Callable[[Result], None], str, str], None],
        verbs: Mapping[str, Verb],
        may: May,
        refuses: Callable[[], str],
        sessions: Sessions,
        protocols: tuple[str, ...],
        origins: tuple[str, ...] = (),
        aside: frozenset[str] = frozenset(),
    ):
        self.gateway, self.ask, self.may, self.refuses = gateway, ask, may, refuses
        self.sessions, self.protocols, self.origins = OverWebSocket(sessions), protocols, origins
        self.reactor, self.times, self.say = gateway.reactor, gateway.times, gateway.say
        self.requests = 0
        self._visitors: Newcomers[Visitor] = Newcomers()
        self._all: set[Visitor] = set()
        self._slices: deque[Callable[[], None]] = deque()
        self._api, scraper = Api(verbs, may, aside), metrics.Scraper()
        self._pages: dict[str, Handler] = {
            "/metrics": lambda request, user: scraper.scrape(),
            "/api": self._api.all,
        }
        self._files = static.files()

    def listen(self, plain: Address | None, tls: Address | None, certificate: str = "", key: str = "") -> None:
        """Raises MomError."""
        self.gateway.open("http", "HTTP", partial(_Accepting, self), plain, tls, certificate, key)

    def accepted(self, host: str, tls: bool) -> Visitor | None:
        if self.gateway.stopping:
            return None
        while len(self._all) >= MAX_VISITORS:
            surplus = self._visitors.surplus()
            self.closed(surplus)
            self.say(surplus.host, f"too many connections to the HTTP port: the oldest of {surplus.host} go")
            surplus.abort()
        visitor = Visitor(self, host, tls)
        self._all.add(visitor)
        self._visitors.add(host, visitor)
        return visitor

    def closed(self, visitor: Visitor) -> None:
        self._all.discard(visitor)
        self._visitors.discard(visitor.host, visitor)

    def abort(self) -> None:
        """Close all connections at once."""
        for visitor in list(self._all):
            visitor.abort()

    def status(self) -> dict[str, int]:
        return {"connections": len(self._all), "requests": self.requests}

    # -- requests ----------------------------------------------------------------------------------------------------

    def serve(self, visitor: Visitor, request: Request) -> None:
        self.requests += request.whole
        changes = request.method == "POST" and request.path.startswith(PREFIX)
        if not changes and request.method not in ("GET", "HEAD"):
            sentence = f"{request.method} is not for this: GET asks, and POST to {PREFIX}VERB changes something"
            visitor.answer(said(405, sentence, allow="GET, HEAD"))
        elif changes and request.forged(visitor.tls):
            visitor.answer(said(403, "no page but this server's own may change something"))
        elif changes and not request.is_json:  # what a page of somebody else may not write either
            visitor.answer(said(415, "what is changed is told in JSON: Content-Type: application/json"))
        elif request.path == "/healthz":
            visitor.answer(said(200, "works"))
        elif request.path == "/readyz":
            reason = self.refuses()
            visitor.answer(said(503, reason) if reason else said(200, "takes work"))
        elif self._free(visitor) and not request.to_this_machine:
            visitor.answer(said(421, "who needs no user calls this machine localhost or 127.0.0.1"))
        elif request.path == "/ws":
            self._websocket(visitor, request)
        else:
            self._login(visitor, request)

    def large(self, request: Request) -> bool:
        """Whether a body of it may be large, for who may send it."""
        return request.method == "POST" and request.path == PREFIX + PLAN

    def _free(self, visitor: Visitor) -> bool:
        return self.gateway.free(visitor.host)

    def _websocket(self, visitor: Visitor, request: Request) -> None:
        """The login comes with the protocol inside, as on its own port."""
        try:
            granted = websocket.accepts(request, self.protocols)
        except MomError as error:
            visitor.answer(said(426, str(error), upgrade="websocket", sec_websocket_version=websocket.VERSION))
            return
        if not (request.same_origin(visitor.tls) or request.headers["origin"] in self.origins):
            origin = request.headers["origin"][:80]
            visitor.answer(said(403, f"no page of {origin!a} may do this: name it in http_origins of this server"))
        elif (client := self.gateway.accepted(self.sessions, visitor.host, visitor.tls)) is not None:
            visitor.become(client, granted)

    def _login(self, visitor: Visitor, request: Request) -> None:
        """The same users as those of STOMP; who needs none there needs none here."""
        login, logins = request.login(), self.gateway.logins
        shown = self.gateway.shown(visitor)
        if shown is not None:
            if wrong := self.gateway.mistaken(login[0] if login else "", shown):
                self.gateway.refusals += 1
                visitor.answer(said(403, wrong))
            else:
                self._granted(visitor, request, shown)
        elif self._free(visitor) and (login is None or logins.stored(login[0]) is None):
            self._granted(visitor, request, "")
        elif login is None:
            self._challenge(visitor, "log in as a user of this server: `mom user add` makes one")
        else:
            user, passcode = login
            try:
                logins.check(user, passcode, lambda right: self._checked(visitor, request, user, right), visitor.host)
            except MomError as error:
                visitor.answer(said(429, str(error)))

    def _checked(self, visitor: Visitor, request: Request, user: str, right: bool) -> None:
        if right:
            self._granted(visitor, request, user)
        else:
            self.gateway.refusals += 1
            self._challenge(visitor, f"access refused for user {user[:80]!r}")

    def _challenge(self, visitor: Visitor, sentence: str) -> None:
        realm = f'Basic realm="mombroker {self.gateway.name}", charset="UTF-8"'
        visitor.answer(said(401, sentence, www_authenticate=realm))

    def _granted(self, visitor: Visitor, request: Request, user: str) -> None:
        changes = request.method == "POST"
        page = self._pages.get(request.path)
        if request.path.startswith(PREFIX):
            page = self._api.change if changes else self._api.ask
        if not user and (changes or request.path == LOGIN):
            self._challenge(visitor, "who changes something logs in, here as well: `mom user add` makes a user")
        elif not self.may(user, BROWSE, BUS):
            how = f"`mom permission set --user {user or '*'} bus --may browse`"
            visitor.answer(said(403, f"{denied(user, BROWSE, 'the bus')}; {how}"))
        elif not request.whole:
            if self.may(user, MANAGE, BUS):
                visitor.go_on()
            else:
                self._refused(visitor, request, user, as_json({"error": denied(user, MANAGE, BUS)}, 403))
        elif request.path == LOGIN:
            visitor.answer(said(303, "logged in", location="/"))
        elif request.path in self._files:
            visitor.answer(self._files[request.path])
        elif page is None:
            there = ", ".join(["/", *self._pages, "/ws"])
            visitor.answer(said(404, f"there is no {request.path[:200]!a} here; there are {there}"))
        else:
            self._soon(partial(self._go, visitor, request, user, page(request, user), None))

    def _refused(self, visitor: Visitor, request: Request, user: str, answer: Answer) -> None:
        self.say(visitor.host, f"{user[:80]!r} of {visitor.host} may not {request.path.removeprefix(PREFIX)}")
        visitor.answer(answer)

    def _soon(self, slice: Callable[[], None]) -> None:
        """One slice of all answers in each turn of the reactor, so that however many ask, clients wait for one."""
        self._slices.append(slice)
        if len(self._slices) == 1:
            self.reactor.callLater(0, self._slice)

    def _slice(self) -> None:
        try:
            self._slices[0]()
        finally:
            self._slices.popleft()
            if self._slices:
                self.reactor.callLater(0, self._slice)

    def _go(self, visitor: Visitor, request: Request, user: str, steps: Steps, reply: Any) -> None:
        """One slice of an answer: up to its next question, or to its end. The server works between two of them."""
        if visitor.lost:
            steps.close()
            return
        try:
            verb, args = steps.throw(MomError(reply)) if isinstance(reply, str) else steps.send(reply)
        except StopIteration as end:
            if request.method == "POST" and end.value.status == 403:
                self._refused(visitor, request, user, end.value)
            else:
                visitor.answer(end.value)
        except MomError as error:
            visitor.answer(said(400, str(error)))
        else:

            def answered(reply: Any) -> None:  # not while the agent server lets go of its outputs
                self._soon(partial(self._go, visitor, request, user, steps, reply))

            self.ask(verb, args, answered, f"user {user}", visitor.host)


class _Accepting(protocol.Factory):
    noisy = False

    def __init__(self, web: Web, tls: bool):
        self.web, self.tls = web, tls

    def buildProtocol(self, addr: Any) -> Visitor | None:
        return self.web.accepted(addr.host, self.tls)
