"""Causal ordering inside one domain: the interface, and the back ends that a domain can choose from."""

from mombroker.ordering.base import Ordering, Packet, Rows, Step
from mombroker.ordering.registry import backend, create, names, resolved, restore

__all__ = ["Ordering", "Packet", "Rows", "Step", "backend", "create", "names", "resolved", "restore"]
