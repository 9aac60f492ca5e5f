"""Groups of agents, the protocol alone: views at the home of a group, and what a member delivers in which view."""
