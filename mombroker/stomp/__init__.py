"""STOMP 1.0, 1.1 and 1.2: the frames, and the rules of a session."""
