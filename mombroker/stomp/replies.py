"""The frames for what the broker says, in the receiver's version."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from mombroker.broker.commands import Delivery, Receipt, Receipts
from mombroker.stomp.frames import END, encode
from mombroker.stomp.headers import V12, escape, text_of

MS = 1_000_000
_escape = lru_cache(1_000)(escape)  # of names that come again with each message


_RECEIPT, _ENDS = "RECEIPT\nreceipt-id:", "\n\n" + END.decode()


def message(delivery: Delivery, message_id: str, version: str, named: bool) -> bytes:
    """A MESSAGE. With `named` it tells its subscription, and in 1.2 how to settle it.

    A client that sees no content-length may take the body for text: it is left out where the sender left it out.
    """
    put = delivery.message
    head = (
        f"MESSAGE\ndestination:{_escape(put.shown, version)}\nmessage-id:{message_id}\n"
        f"timestamp:{put.timestamp // MS}\nJMSXDeliveryCount:{delivery.count}\n"
    )
    if named:
        head += f"subscription:{_escape(delivery.sub, version)}\n"
    if version == V12 and delivery.ack != "auto":
        head += f"ack:{message_id}\n"
    if delivery.count > 1:
        head += "redelivered:true\n"
    if put.priority != 4:
        head += f"priority:{put.priority}\n"
    if delivery.expires:
        head += f"expires:{delivery.expires // MS}\n"
    if not put.persistent:
        head += "persistent:false\n"
    if put.annotations:
        for name, value in put.annotations.items():
            head += f"{escape(name, version)}:{escape(value, version)}\n"
    body, kind = put.body, put.kind
    if kind != "text":
        head += f"content-length:{len(body)}\n"
        if kind != "bytes":
            head += f"amq-msg-type:{escape(kind, version)}\n"
    elif b"\0" in body:
        head += f"content-length:{len(body)}\namq-msg-type:text\n"
    if put.properties or put.correlation or put.reply_to or put.content_type or put.type or put.form:
        return b"".join((head.encode(), text_of(put, version), b"\n", body, END))
    return b"".join((head.encode(), b"\n", body, END))


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
