"""Queues: messages on one home server, each for one of its consumers."""
