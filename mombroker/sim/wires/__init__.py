"""Clients that speak AMQP and STOMP to the servers of one bus, byte by byte."""
