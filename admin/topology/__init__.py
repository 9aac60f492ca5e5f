"""Topology files: pictures of them, and the import of other brokers' files."""
