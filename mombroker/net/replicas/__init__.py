"""A server that has replicas: their connections, their log on disk, and the server on the one that leads."""
