"""Queues and topics for authors' agents: what they send there, and what they take from there."""
