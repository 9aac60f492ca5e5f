"""An agent server on real sockets, files and time: everything here runs on a Twisted reactor that is passed in."""
