"""A server for clients on real sockets."""

from tests.gateway.live import town as town
