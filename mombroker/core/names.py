"""Names of agents: decided once by the registry server, known on every server, applied in delivery order.

A decision is one multicast to all servers, sent after the creation of the agent: whoever knows the name can send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mombroker.core.errors import MomError, UnknownName
from mombroker.core.ids import AGENT_NAME, declared_id
from mombroker.core.message import BOUNCE, Message

if TYPE_CHECKING:
    from mombroker.core.server import AgentServer

CREATE = "_create"
DEPLOY, NAMED, REFUSED = "_deploy", "_named", "_refused"


class Names:
    """1. A name never changes its id. 2. Handlers never fail, wait or retry."""

    def __init__(self, server: AgentServer, meta: dict[str, str | int]):
        self.server = server
        self.known = {key[5:]: str(value) for key, value in meta.items() if key.startswith("name:")}
        self.known.update({agent.name: declared_id(agent.server, agent.name) for agent in server.topology.agents})
        self.tickets: dict[str, int] = {}  # asked for by an operator here
        self.handlers = {DEPLOY: self._decide, NAMED: self._named, REFUSED: self._refused}

    def resolve(self, name: str) -> str:
        try:
            return self.known[name]
        except KeyError:
            raise UnknownName(name) from None

    def ask(self, ticket: int, name: str, path: str, state: bytes, home: str) -> None:
        """Deploy an agent under a new name; the reply to `ticket` follows the decision."""
        server = self.server
        if not AGENT_NAME.fullmatch(name) or name.startswith("_"):
            raise MomError(f"{name!r} cannot be an agent's name: letters, digits and . _ : - only, no leading _")
        if name in self.known or name in self.tickets:
            raise MomError(f"the name {name} is taken by {self.known.get(name, 'a deployment under way')}")
        server.distance(home)
        self.tickets[name] = ticket
        registry = server.topology.registry or server.name
        payload = f"{name}\n{home}\n{path}\n".encode() + state
        server.send(server.message(f"{server.name}/_admin", (f"{registry}/_registry",), DEPLOY, payload, flags=BOUNCE))

    def _decide(self, message: Message) -> None:
        name_, home_, path, state = message.payload.split(b"\n", 3)
        name, home, server = name_.decode(), home_.decode(), self.server
        source = f"{server.name}/_registry"
        asker = message.source.partition("/")[0]
        if name in self.known:
            server.send(server.message(source, (f"{asker}/_names",), REFUSED, message.payload, flags=BOUNCE))
            return
        id = declared_id(home, name)
        server.send(server.message(source, (id,), CREATE, path + b"\n" + state))
        everyone = tuple(f"{other}/_names" for other in server.topology.servers)
        server.send(server.message(source, everyone, NAMED, f"{name}\n{id}\n{asker}".encode(), flags=BOUNCE))

    def _named(self, message: Message) -> None:
        name, id, asker = message.payload.decode().split("\n")
        server = self.server
        if name not in self.known:
            self.known[name] = id
            server.batch.meta[f"name:{name}"] = id
            server.engine.name_known(name)
        ticket = self.tickets.pop(name, 0) if asker == server.name else 0
        if ticket:
            server.replies.append((ticket, {"name": name, "agent": self.known[name]}))

    def _refused(self, message: Message) -> None:
        name = message.payload.split(b"\n", 1)[0].decode()
        ticket = self.tickets.pop(name, 0)
        if ticket:
            self.server.replies.append((ticket, f"the name {name} is taken: choose another"))
