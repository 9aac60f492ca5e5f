"""What makes a server a broker: sessions of clients, queues and topics, and what operators may ask of them."""

from mombroker.broker.session.service import Sessions
from mombroker.broker.verbs.messages import MessageVerbs
from mombroker.broker.verbs.policies import PolicyVerbs
from mombroker.broker.verbs.queues import QueueVerbs
from mombroker.broker.verbs.retry import RetryVerbs
from mombroker.broker.verbs.subscriptions import SubscriptionVerbs
from mombroker.broker.verbs.topics import TopicVerbs
from mombroker.core.server import AgentServer
from mombroker.core.status import StatusVerbs
from mombroker.core.verbs import AgentVerbs, LetterVerbs, LogVerbs, UserVerbs


def attach(server: AgentServer) -> Sessions:
    """Have a server serve clients. The server calls it while it is made, before it takes up what its store holds."""
    sessions = Sessions(server.natives, server.alarms.why)
    letters = LetterVerbs(server.dead_letters.letters, server.program)
    server.requests.add(
        StatusVerbs(server), AgentVerbs(server), letters, RetryVerbs(sessions, letters), QueueVerbs(sessions),
        SubscriptionVerbs(sessions), TopicVerbs(sessions), MessageVerbs(sessions), PolicyVerbs(sessions.policies),
        UserVerbs(server.tx), LogVerbs(server.tx),
    )  # fmt: skip
    return sessions
