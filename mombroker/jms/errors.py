"""What can go wrong for a client. Each is one sentence that names the next thing to try."""

from mombroker.core.errors import MomError


class JmsError(MomError):
    """Base of all below."""


class InvalidUrl(JmsError):
    """Not the address of a server."""


class InvalidDestination(JmsError):
    """A destination cannot be written so, or not be used so."""


class InvalidSelector(JmsError):
    """A selector cannot be read; the sentence tells where."""


class MessageFormat(JmsError):
    """A body, property or option that a message cannot have, or a body that is not what the message says."""


class IllegalState(JmsError):
    """Not now, or not in this acknowledge mode: closed, not transacted, a listener is there."""


class TimedOut(JmsError):
    """The answer did not come in time. What was asked may still happen."""


class ConnectionLost(JmsError):
    """The connection is gone, and with it the answer: what was asked may have happened."""


class Refused(JmsError):
    """The server said no, and this is what it said."""


class LoginRefused(Refused):
    """The server does not let this user in."""


class RolledBack(JmsError):
    """The transaction did not happen, and what it has consumed comes again. If the connection was lost during the
    commit it may have happened all the same: then nothing comes again."""
