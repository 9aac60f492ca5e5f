"""A server with replicas, in virtual time: its hosts, their disks and the ways between them."""
