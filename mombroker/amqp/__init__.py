"""AMQP 1.0: codec, connections, sessions and links as pure machines, and what of it means which command."""
