"""A client of AMQP at a server of a bus in virtual time: no sockets, and what is committed when is up to the test."""

from mombroker.amqp import codec, messages, performatives
from mombroker.amqp.performatives import RECEIVER, SENDER, SOURCE, TARGET
from tests.amqp.peer import Peer, attach, flow, terminus, transfer


class Wired(Peer):
    """Each part of the connection is a client of the bench.

    `got`: payloads of messages; `outcomes`: (first, last, code) of what was sent, and `why` of what was rejected;
    `detached`: (handle, condition, text).
    """

    def __init__(self, broker, server="a"):
        super().__init__()
        self.broker, self.server = broker, server
        self.parts, self.got, self.outcomes, self.ids = {}, [], [], 0
        self.why, self.detached = [], []
        self.began()

    def say(self, *bodies, channel=0, pump=True):
        super().say(*bodies, channel=channel)
        return self.pump() if pump else self

    def pump(self):
        """Until nobody has anything to say."""
        while self.hand_over():
            self.hear()
        return self.hear()

    def hand_over(self):
        """What it has asked for so far is done and durable, and it has not heard of that; whether it was anything."""
        asked = self.connection.asked
        for part, commands in asked:
            if part not in self.parts:
                self.parts[part] = self.broker.connect(self.server, self.connection.client_id, strict=False)
            self.parts[part].do(*commands)
        return bool(asked)

    def hear(self):
        """What the bus has told its parts meanwhile."""
        for part, client in self.parts.items():
            told, client.told = client.told, []
            if told and client.open:
                self.connection.reply_to(part, told)
                self.connection.check()
        for each in self.look().take():
            if isinstance(each, tuple) and each[0] == performatives.TRANSFER:
                self.got.append(each[2])
            elif isinstance(each, tuple) and each[0] == performatives.DISPOSITION:
                _, first, last, _, state = each[1]
                self.outcomes.append((first, first if last is None else last, state.descriptor))
                if state.descriptor == performatives.REJECTED:
                    self.why.append(tuple(map(str, state.value[0].value[:2])))
            elif isinstance(each, tuple) and each[0] == performatives.DETACH and each[1][2] is not None:
                self.detached.append((each[1][0], *map(str, each[1][2].value[:2])))
        return self

    def sender(self, address, handle=0, **more):
        return self.say(attach(handle, SENDER, terminus(SOURCE, None), terminus(TARGET, address, **more)))

    def receiver(self, address, handle=1, credit=100, **more):
        source = terminus(SOURCE, address, **more)
        return self.say(attach(handle, RECEIVER, source, terminus(TARGET, None)), flow(handle, credit))

    def send(self, *payloads, handle=0, pump=True):
        bodies = [transfer(handle, self.ids + at, each) for at, each in enumerate(payloads)]
        self.ids += len(payloads)
        return self.say(*bodies, pump=pump)


def sections(*found):
    """A payload: (code, value) of each section; a list is one of fields."""
    return b"".join(codec.described(code, codec.any_value(value)) for code, value in found)


def read(payload):
    """Properties, those of the application, annotations, and the body."""
    split = messages.split(payload)
    head = messages.head_of(split.kept)
    body = codec.read(payload, split.head)
    return head.properties, head.application, head.annotations, body.value
