"""The frames for what the broker says, in the receiver's version."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from mombroker.broker.commands import Delivery, DeliveryRun, Receipt, Receipts
from mombroker.broker.message import Alike
from mombroker.stomp.frames import END, encode
from mombroker.stomp.headers import V12, escape, text_of

MS = 1_000_000
_escape = lru_cache(16_384)(escape)  # of names that come again with each message


_RECEIPT, _ENDS = "RECEIPT\nreceipt-id:", "\n\n" + END.decode()


class Head(NamedTuple):
    """The headers of a MESSAGE around its id, which stands behind `start` and `again`, and around its length."""

    start: str
    again: str
    rest: str
    behind: bytes


_made = tuple.__new__  # half the time of Head(...)
Heads = dict[tuple[Alike, str, str, bool], Head]  # what runs have in common, by subscription, its ack and `counted`


def message(delivery: Delivery, message_id: str, version: str, named: bool, known: Heads) -> bytes:
    """A MESSAGE. With `named` it tells its subscription, and in 1.2 how to settle it. `known`: of the same receiver.

    A client that sees no content-length may take the body for text: it is left out where the sender left it out.
    """
    sub, _, _, put, count, expires, ack, _ = delivery
    body, alike = put.body, put.alike
    counted = put.kind != "text" or b"\0" in body
    if alike is None or expires or count > 1:
        head = _head(delivery, version, named, counted)
    else:
        key = (alike, sub, ack, counted)
        found = known.get(key)
        head = known[key] = _head(delivery, version, named, counted) if found is None else found
    start, again, rest, behind = head
    ids = f"{start}{message_id}{again}{message_id if again else ''}"
    return b"".join((f"{ids}{rest}{len(body) if counted else ''}".encode(), behind, body, END))


def messages(reply: DeliveryRun, version: str, named: bool) -> bytes:
    """The MESSAGEs of a run. Receivers of the same version that call their subscription alike get the same."""
    run = reply.run
    key = (reply.sub if named else None, version)
    frames = run.frames.get(key)
    if frames is None:
        known: Heads = {}
        made = [message(each, settled_id(each), version, named, known) for each in reply.singles()]
        frames = run.frames[key] = b"".join(made)
    return frames


def settled_id(delivery: Delivery) -> str:
    """The message-id of what is settled by being written: nobody names that delivery."""
    return f"{delivery.id}/"


def _head(delivery: Delivery, version: str, named: bool, counted: bool) -> Head:
    put = delivery.message
    rest = f"\ntimestamp:{put.timestamp // MS}\nJMSXDeliveryCount:{delivery.count}"
    if named:
        rest += f"\nsubscription:{_escape(delivery.sub, version)}"
    if delivery.count > 1:
        rest += "\nredelivered:true"
    if put.priority != 4:
        rest += f"\npriority:{put.priority}"
    if delivery.expires:
        rest += f"\nexpires:{delivery.expires // MS}"
    if delivery.due:
        rest += f"\nJMSDeliveryTime:{delivery.due // MS}"
    if not put.persistent:
        rest += "\npersistent:false"
    if put.annotations:
        for name, value in put.annotations.items():
            rest += f"\n{escape(name, version)}:{escape(value, version)}"
    behind = "\n"
    if counted:
        rest += "\ncontent-length:"
        if put.kind != "bytes":
            behind = f"\namq-msg-type:{escape(put.kind, version)}\n"
    data = behind.encode()
    if put.properties or put.correlation or put.reply_to or put.content_type or put.type or put.form:
        data += text_of(put, version)
    again = "\nack:" if version == V12 and delivery.ack != "auto" else ""
    start = f"MESSAGE\ndestination:{_escape(put.shown, version)}\nmessage-id:"
    return _made(Head, (start, again, rest, data + b"\n"))


def browse_end(sub: str, shown: str, version: str) -> bytes:
    headers = [("destination", shown), ("message-id", ""), ("subscription", sub), ("browser", "end")]
    return encode("MESSAGE", headers, version=version)


def receipt(reply: Receipt, version: str) -> bytes:
    if not reply.unconfirmed:
        text = reply.receipt
        return f"RECEIPT\nreceipt-id:{text if text.isalnum() else escape(text, version)}\n\n\0\n".encode()
    return encode("RECEIPT", [("receipt-id", reply.receipt), ("unconfirmed", reply.unconfirmed)], version=version)


def receipts(reply: Receipts, version: str) -> bytes:
    texts = [text if text.isalnum() else escape(text, version) for text in reply.receipts]
    return f"{_RECEIPT}{(_ENDS + _RECEIPT).join(texts)}{_ENDS}".encode()


def error(text: str, receipt: str | None, version: str, more: Iterable[tuple[str, str]] = ()) -> bytes:
    """An ERROR: its first line is the header `message`, all of it the body."""
    body = f"{text}\n".encode()
    headers = [("message", text.partition("\n")[0]), *more]
    if receipt is not None:
        headers.append(("receipt-id", receipt))
    headers += [("content-type", "text/plain"), ("content-length", str(len(body)))]
    return encode("ERROR", headers, body, version)
