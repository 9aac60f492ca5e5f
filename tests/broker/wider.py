"""A later program, whose messages have one field more: python -m tests.broker.wider.

Whatever becomes of a message, all of its fields go with it. A program by itself, since the field must be there before
anything else is imported.
"""

import ast
import dataclasses
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType

ADDED = '    added: str = "as before"'
read = SourceFileLoader.get_code


def get_code(self: SourceFileLoader, name: str) -> CodeType | None:
    if name != "mombroker.broker.message":
        return read(self, name)
    source = self.get_data(self.path).decode()
    (cls,) = (node for node in ast.parse(source).body if getattr(node, "name", "") == "ClientMessage")
    lines, fields = source.splitlines(), [node for node in cls.body if isinstance(node, ast.AnnAssign)]  # type: ignore[attr-defined]
    last = max(node.end_lineno or 0 for node in fields if "LOCAL" not in ast.unparse(node))
    return compile("\n".join([*lines[:last], ADDED, *lines[last:]]), self.path, "exec")


SourceFileLoader.get_code = get_code  # type: ignore[method-assign]

from mombroker.broker.commands import REJECTED, Send  # noqa: E402
from mombroker.broker.message import PUT, ClientMessage, row_of  # noqa: E402
from mombroker.broker.protocol import Dispatch, Publish  # noqa: E402
from mombroker.broker.session.handlers import Handlers  # noqa: E402
from mombroker.broker.wire import pack  # noqa: E402
from tests.broker.bench import THREE, Broker  # noqa: E402
from tests.broker.samples import others  # noqa: E402

Q, MOVED = "queue:orders", "queue:others"
# All that a sender can say; but such a message would not wait, would have no row, or be dropped the second time.
MORE = others(Send, "destination", "body", "delay", "expires", "persistent", "dedup", "receipt", "message", "shown")
MADE: list[dict[str, object]] = []
put = Handlers._message


def widened(self: Handlers, *args: object) -> ClientMessage:
    made = put(self, *args)  # type: ignore[arg-type]
    made.added = "kept"
    MADE.append(dataclasses.asdict(made))
    return made


def same(found: ClientMessage, *but: str) -> None:
    known, made = dataclasses.asdict(found), MADE[-1]
    assert known["added"] == "kept", "a field is lost"
    differ = {name for name in made if known[name] != made[name]} - {"reserved"}
    assert differ <= set(but), f"changed on its way: {differ}"


def waiting(b: Broker, name: str) -> ClientMessage:
    messages = b.queue(name).messages
    first = messages.first()
    assert first is not None, f"nothing waits in {name}"
    return messages.loaded(first)


def main() -> None:
    Handlers._message = widened  # type: ignore[method-assign]
    b = Broker(THREE)
    b.ask("a", "create_queue", destination=Q)
    b.ask("c", "create_queue", destination=MOVED)
    b.connect("b").send(Q, "text", **MORE)
    same(waiting(b, Q))  # came from another server
    assert b.ask("a", "browse", destination=Q)["messages"][0]["added"] == "kept"
    b.reboot("a")
    same(waiting(b, Q))  # was a row
    assert b.connect("a").subscribe("s", Q, ack="individual").texts == ["text"]
    b.reboot("a")
    same(waiting(b, Q))  # was with somebody
    assert b.ask("a", "move", destination=Q, target=MOVED)["moved"] == 1
    same(waiting(b, MOVED), "destination")
    b.connect("a").subscribe("s", MOVED, ack="individual").nack("text", outcome=REJECTED)
    same(waiting(b, "queue:DLQ.others"), "destination", "annotations")
    b.connect("a", client_id="me").subscribe("d", "topic:t", durable="d").close()
    b.connect("b").send("topic:t", "text", **MORE)
    same(waiting(b, "sub:me:d"), "group", "message")


def narrower() -> None:
    """What an older program wrote has the default."""
    old = list(ClientMessage("queue:q", "/queue/q", body=b"x").values())[: PUT.index("added")]
    assert ClientMessage.unpack(pack(old)).added == ClientMessage.of(old).added == "as before"
    row = list(row_of(ClientMessage(*old)))[: PUT.index("added") - 1]
    assert ClientMessage.of_row(row, b"x").body == b"x" and ClientMessage.of_row(row, b"x").added == "as before"
    newer = [*ClientMessage(*old).values(), "of a later one still"]
    assert (
        ClientMessage.of(newer)
        == ClientMessage(*old)
        == ClientMessage.of_row([*row_of(ClientMessage(*old)), "of a later one"], b"x")
    )
    assert Publish.unpack(pack([newer, None])).size == 1 and Dispatch.unpack(pack([1, []])).items == []


if __name__ == "__main__":
    assert PUT[-1] == "added", f"no field was added to {PUT}"
    main()
    narrower()
    sys.stdout.write("all fields are there\n")
