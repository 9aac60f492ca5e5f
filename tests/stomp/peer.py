"""A STOMP client without a socket, for tests: what it sends, and the commands and frames that come of it."""

import pytest

from mombroker.broker.commands import RUNS, Delivery, Receipt, Sync
from mombroker.broker.message import ClientMessage
from mombroker.stomp.frames import SERVER, Limits, Parser, encode
from mombroker.stomp.headers import V10, V11, V12
from mombroker.stomp.session import LAST, Session
from mombroker.stomp.settings import Settings

VERSIONS = (V10, V11, V12)
MS = 1_000_000
NOW = 1_700_000_000_000 * MS
ID = "s1/5f-7"


def singles(commands):
    """Runs as the messages that they are."""
    return [each for one in commands for each in (one.singles() if isinstance(one, RUNS) else [one])]


class Client:
    """A session with what a client of it would see. The proxy is the test."""

    def __init__(self, id=ID, **settings):
        self.session = Session(id, lambda: NOW, Settings(**settings))
        self.parser = Parser(Limits(), V10, SERVER)

    def raw(self, data):
        self.session.receive(data)
        self.session.check()
        return self

    def connect(self, version=V12, accept=True, **headers):
        if version != V10:
            headers["accept-version"] = version
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.raw(encode("CONNECT", headers.items()))
        if accept:
            self.session.accept()
            (self.connected,) = self.frames()
            assert self.connected.command == "CONNECTED", self.connected
        return self

    def send(self, command, body=b"", **headers):
        """Send a frame; the commands that it makes."""
        pairs = [
            (name if name.startswith(("AMQ", "_")) else name.replace("_", "-"), value)
            for name, value in headers.items()
        ]
        self.raw(encode(command, pairs, body, self.session.version))
        return self.take()

    def take(self):
        commands, self.session.commands = self.session.commands, []
        return commands

    def frames(self):
        """What the client can read now."""
        data, self.session.output = b"".join(self.session.output), []
        self.parser.agree(self.session.version, self.parser.limits)
        self.parser.feed(data)
        frames = []
        while (frame := self.parser.next()) is not None:
            frames.append(frame)
        assert not self.parser.waiting
        return frames

    def say(self, *replies):
        """What the proxy says, as the client sees it."""
        self.session.reply(list(replies))
        self.session.check()
        return self.frames()

    def fails(self, command, text, body=b"", receipt=None, **headers):
        """The frame is a fault: ERROR after what came before, then the end."""
        if receipt is not None:
            headers["receipt"] = receipt
        before = self.send(command, body, **headers)
        assert before[-1] == Sync(LAST) and self.frames() == []
        return self.ended(text, receipt)

    def ended(self, text, receipt=None):
        if not self.session.closed:
            self.session.reply([Receipt(LAST)])
        (error,) = self.frames()
        assert (error.command, self.session.closed) == ("ERROR", True)
        assert text in error.headers["message"] and error.body.decode().startswith(error.headers["message"])
        assert error.headers.get("receipt-id") == receipt
        assert error.headers["content-type"] == "text/plain"
        assert error.headers["content-length"] == str(len(error.body))
        return error

    def give(self, tag, sub="a", ack="client", **fields):
        """A delivery; the frame that the client sees."""
        id, put = fields.pop("id", f"s1#{tag + 100}"), message(**fields)
        (frame,) = self.say(Delivery(sub, tag, id, put, ack=ack))
        return frame

    def settles(self, command, frame, **headers):
        """Settle a delivery in the client's version."""
        if self.session.version == V12:
            headers["id"] = frame.headers["ack"]
        else:
            headers["message-id"] = frame.headers["message-id"]
            if self.session.version == V11:
                headers["subscription"] = frame.headers["subscription"]
        return self.send(command, **headers)


def message(shown="/queue/a", body=b"x", **fields):
    return ClientMessage("queue:a", shown, body=body, **fields)


def client(version=V12, **settings):
    return Client(**settings).connect(version)


@pytest.fixture(params=VERSIONS)
def any_version(request):
    return client(request.param)
