"""Persistent reactive agents."""

if __name__ == "agents":
    raise ImportError("this folder is imported as mombroker.agents")

from mombroker.agents.agent import Agent, reacts
from mombroker.agents.declaring import Reject, agent
from mombroker.agents.groups import Group, MemberDown, MemberUp, View
from mombroker.agents.messages import Delivered, consumes, subscribes
from mombroker.agents.notifications import (
    DeferDone,
    DeferFailed,
    Expired,
    NotDelivered,
    ReactionFailed,
    Undeliverable,
    UnknownAgent,
    notification,
)
from mombroker.agents.program import faults, program
from mombroker.agents.replicated import Replicated, command
from mombroker.agents.tables import Item, Items, Table

__all__ = [
    "Agent",
    "DeferDone",
    "DeferFailed",
    "Delivered",
    "Expired",
    "Group",
    "Item",
    "Items",
    "MemberDown",
    "MemberUp",
    "NotDelivered",
    "ReactionFailed",
    "Reject",
    "Replicated",
    "Table",
    "Undeliverable",
    "UnknownAgent",
    "View",
    "agent",
    "command",
    "consumes",
    "faults",
    "notification",
    "program",
    "reacts",
    "subscribes",
]
