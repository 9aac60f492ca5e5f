"""Sessions: one for each connection of a client."""
