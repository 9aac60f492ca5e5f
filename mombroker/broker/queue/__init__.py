"""Queues: messages on one home server for whoever takes them."""
