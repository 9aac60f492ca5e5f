"""The HTTP port without sockets: time, transport and the server's answers are the test's."""

import base64

import h11

from mombroker.admin.cli.tables_reference import verbs
from mombroker.gateway.web.port import Web
from tests.gateway.world import Raw, World


class Visit(Raw):
    """A connection to the port."""

    def __init__(self, protocol, clock):
        self.clock = clock
        super().__init__(protocol)

    def all(self):
        """Whatever comes until nothing more does."""
        found = b""
        for _ in range(50):
            self.clock.advance(0)
            found += self.drain()
        return found

    def ask(self, target="/healthz", method="GET", body=b"", **headers):
        """(status, headers, body) of the answer to a request; `None` when there is none."""
        self.receive(request(target, method, body=body, **headers))
        return self.answer(method)

    def answer(self, method="GET"):
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        client.send(h11.EndOfMessage())
        data = self.all()
        if not data:
            return None
        client.receive_data(data)
        head, body = client.next_event(), b""
        while type(event := client.next_event()) is h11.Data:
            body += bytes(event.data)
        assert type(event) is h11.EndOfMessage, event
        return head.status_code, {name.decode(): value.decode() for name, value in head.headers}, body.decode()


def request(target="/healthz", method="GET", host="127.0.0.1:8161", body=b"", **headers):
    named = {"Host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    if body:
        named["Content-Length"] = str(len(body))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def basic(user, passcode):
    return "Basic " + base64.b64encode(f"{user}:{passcode}".encode()).decode()


class WebWorld(World):
    """`replies`: what the server says to each verb, a function of its arguments; `asked`: what it was asked, and
    `askers` by whom, from where."""

    def __init__(self, anonymous=True, **settings):
        super().__init__(anonymous, **settings)
        self.replies, self.asked, self.askers, self.reason, self.silent = {}, [], [], "", False
        self.denied = set()  # (user, action, destination)
        self.web = Web(
            self.gateway, self._ask, {verb.name: verb for verb in verbs()}, lambda *what: what not in self.denied,
            lambda: self.reason, self.stomp, self.stomp.subprotocols, ("https://shop.example",),
        )  # fmt: skip

    def _ask(self, verb, args, answer, who, where):
        self.asked.append((verb, args))
        self.askers.append((who, where))
        if not self.silent:
            answer(self.replies[verb](**args))

    def visit(self, host="127.0.0.1"):
        return Visit(self.web.accepted(host, tls=False), self.clock)
