"""The audit: what the logs of a bus, or their export, say of order, losses and repeats."""
