"""What makes a server a broker: sessions of clients, queues and topics, and what operators may ask of them."""

from functools import partial

from mombroker.broker import policies
from mombroker.broker.access import permissions
from mombroker.broker.session.service import Sessions
from mombroker.broker.verbs.access import PermissionVerbs, UserVerbs
from mombroker.broker.verbs.drain import DrainVerbs
from mombroker.broker.verbs.groups import GroupVerbs
from mombroker.broker.verbs.messages import MessageVerbs
from mombroker.broker.verbs.policies import PolicyVerbs
from mombroker.broker.verbs.queues import QueueVerbs
from mombroker.broker.verbs.retry import RetryVerbs
from mombroker.broker.verbs.subscriptions import SubscriptionVerbs
from mombroker.broker.verbs.topics import TopicVerbs
from mombroker.core.server import AgentServer
from mombroker.core.status import StatusVerbs, closed
from mombroker.core.topology_verbs import ChangeVerbs, JoinVerbs, LossVerbs, TopologyVerbs
from mombroker.core.verbs import AgentVerbs, LetterVerbs, LogVerbs


def attach(server: AgentServer) -> Sessions:
    """Have a server serve clients. The server calls it while it is made, before it takes up what its store holds."""
    sessions = Sessions(server.natives, server.alarms.why)
    server.truth.checks.append(policies.check)
    server.truth.checks.append(permissions.check)
    server.truth.applied += [sessions.policies.revised, sessions.access.permissions.revised]
    moves = server.departures, server.arrivals
    agents = AgentVerbs(server.natives, server.engine, server.program, partial(closed, server), *moves)
    letters = LetterVerbs(server.dead_letters.letters, server.program)
    of_core = StatusVerbs(server), agents, letters, LogVerbs(server.tx)
    drain = DrainVerbs(sessions, server.dead_letters.letters, agents)
    server.change.holds = drain.holds
    destinations = QueueVerbs(sessions), SubscriptionVerbs(sessions), TopicVerbs(sessions), MessageVerbs(sessions)
    server.requests.add(
        *of_core,
        *destinations,
        GroupVerbs(sessions),
        RetryVerbs(sessions, letters),
        drain,
        PolicyVerbs(sessions.policies),
        UserVerbs(sessions.access),
        PermissionVerbs(sessions.access),
    )
    server.requests.add(TopologyVerbs(server.truth), ChangeVerbs(server.change, server.coordinator, server.newcomers))
    server.requests.add(LossVerbs(server.losses, server.lost))
    server.requests.add(JoinVerbs(server.truth, server.newcomers))
    return sessions
