"""SIGHUP between the first line of a command and the moment at which its server can obey it: it waits in the system."""

import signal

HANGUP = {signal.SIGHUP}


def hold() -> None:
    """From now on it waits."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HANGUP)


def let_go() -> None:
    """One that has come meanwhile comes now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANGUP)
