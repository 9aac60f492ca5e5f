"""The simulator: the agent servers of the broker under virtual time, with disks and a network that fail by a seed."""
