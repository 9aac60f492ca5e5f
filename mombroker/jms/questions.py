"""What agents are asked, and what they answer: notifications as JSON."""

from __future__ import annotations

from typing import Any

from mombroker.agents import notifications
from mombroker.broker.protocol import FAILURES
from mombroker.core.errors import MomError
from mombroker.jms.errors import MessageFormat, Refused
from mombroker.jms.messages import Message

JSON = "application/json"


def written(note: Any) -> tuple[str, str]:
    """Type and body. Raises MessageFormat for what is no notification, or cannot be written as JSON."""
    try:
        type, body = notifications.to_json(note)
    except TypeError as error:
        raise MessageFormat(str(error)) from None
    if type.startswith(f"{notifications.NAMELESS}."):
        raise MessageFormat(
            f"no agent knows {type}, of a program that is run as a file: run it by python -m, import the class from "
            "its module, or give it a name: @notification(name=...)"
        )
    return type, body.decode()


def failure(answer: Message) -> str:
    """Why an agent has not answered, in one sentence; empty if it has."""
    if answer.type not in FAILURES:
        return ""
    said = answer.body
    return f"{said['agent']}: {said['reason']}"


def read(answer: Message) -> Any:
    """The notification that an answer is, if its class is known here, else itself. Raises Refused for what is none, and
    MessageFormat for fields that do not fit."""
    if why := failure(answer):
        raise Refused(why)
    cls = notifications.TYPES.get(answer.type)
    if cls is None:
        return answer
    try:
        return notifications.from_json(cls, answer.raw)
    except MomError as error:
        raise MessageFormat(str(error)) from None
