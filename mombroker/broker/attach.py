"""What makes a server a broker: sessions of clients, queues and topics, and what operators may ask of them."""

from mombroker.broker.session.service import Sessions
from mombroker.broker.verbs import Operations
from mombroker.core.server import AgentServer


def attach(server: AgentServer) -> Sessions:
    """Have a server serve clients. The server calls it while it is made, before it takes up what its store holds."""
    sessions = Sessions(server.natives)
    Operations(sessions)
    return sessions
