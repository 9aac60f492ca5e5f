"""Queues, topics and the sessions of clients: what a server serves, whatever protocol brings it."""
