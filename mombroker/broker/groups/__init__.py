"""Groups of agents on the bus: their homes, and the members of a server."""
