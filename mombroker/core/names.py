"""Names of agents: decided once by the registry server, known on every server, applied in delivery order.

A decision is one multicast to all servers, sent after the creation of the agent: whoever knows the name can send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mombroker.core.errors import MomError, NoRoute, UnknownName, UnknownNotification
from mombroker.core.ids import AGENT_NAME, ID_CHARS, OURS, check_address, declared_id, home_of, is_id
from mombroker.core.message import BOUNCE, Message

if TYPE_CHECKING:
    from mombroker.core.server import AgentServer

CREATE = "_create"
DEPLOY, NAMED, REFUSED = "_deploy", "_named", "_refused"
FORGET, FORGOTTEN = "_forget", "_forgotten"


def _texts(message: Message, count: int) -> list[str]:
    """The lines that its payload has, the last one perhaps of bytes. Raises UnknownNotification."""
    parts = message.payload.split(b"\n", count - 1)
    try:
        lines = [part.decode() for part in parts[:3]]
    except ValueError as error:
        raise UnknownNotification(f"{message.type} came with what is no text: {error}") from None
    if len(parts) != count or max(map(len, lines)) > ID_CHARS:
        raise UnknownNotification(f"{message.type} came with {len(parts)} lines, or very long ones")
    return lines


class Names:
    """1. A name never changes its id unless it was forgotten in between. 2. Handlers never fail, wait or retry."""

    def __init__(self, server: AgentServer, meta: dict[str, str | int]):
        self.server = server
        self.known = {key[5:]: str(value) for key, value in meta.items() if key.startswith("name:")}
        self.known.update({agent.name: declared_id(agent.server, agent.name) for agent in server.topology.agents})
        self.tickets: dict[str, int] = {}  # asked for by an operator here
        self.wanted: set[str] = set()  # asked for by the broker here
        server.handlers.update({
            DEPLOY: self._decide, NAMED: self._named, REFUSED: self._refused, FORGET: self._decide_to_forget,
            FORGOTTEN: self._forgotten,
        })  # fmt: skip
        server.at_once |= {DEPLOY, NAMED, REFUSED, FORGET, FORGOTTEN}
        server.readers.update({
            DEPLOY: self._read_request, NAMED: self._read_named, REFUSED: self._read_request,
            FORGET: self._read_forgotten, FORGOTTEN: self._read_forgotten,
        })  # fmt: skip

    def resolve(self, name: str) -> str:
        """The id of the agent of this name. Raises UnknownName, or MomError for what can never become a name."""
        try:
            return self.known[name]
        except KeyError:
            if name.startswith(OURS) or (AGENT_NAME.fullmatch(name) and not name.startswith("_")):
                raise UnknownName(name) from None
            raise MomError(
                f"{ascii(name[:64])} cannot be an agent's name: letters, digits and . _ : - only, no leading _"
            ) from None

    def address(self, agent: str) -> str:
        """The id of an agent that somebody has named by its name or id. Raises MomError."""
        check_address(agent)
        if is_id(agent):
            self.server.distance(home_of(agent))  # raises for a server that is not on this bus
            return agent
        id = self.resolve(agent)
        self.present(id, agent)
        return id

    def departed(self, id: str, shown: str) -> str:
        """What to tell whoever asks for an agent whose home has left the bus; empty if that is here."""
        home = home_of(id)
        if home in self.server.topology.servers:
            return ""
        return (
            f"{shown} lived on {home}, which has left this bus: take another name, or stop the bus and withdraw this "
            "one by `mom topology adopt --drop`"
        )

    def present(self, id: str, shown: str) -> None:
        """Raises NoRoute for an agent whose home has left the bus."""
        if reason := self.departed(id, shown):
            raise NoRoute(reason)

    def deploy(self, ticket: int, name: str, path: str, state: bytes, home: str) -> None:
        """Deploy an agent under a new name; the reply to `ticket` follows the decision."""
        if not AGENT_NAME.fullmatch(name) or name.startswith(("_", *OURS)):
            raise MomError(
                f"{name!r} cannot be an agent's name: letters, digits and . _ : - only, no leading _ nor "
                f"{', '.join(OURS)}, which are the broker's own"
            )
        self.create(ticket, name, path, state, home)

    def create(self, ticket: int, name: str, path: str, state: bytes, home: str) -> None:
        """The same, for a name of the broker's own."""
        if name in self.known:
            self.present(self.known[name], name)
        if name in self.known or name in self.tickets:
            raise MomError(f"the name {name} is taken by {self.known.get(name, 'a deployment under way')}")
        self.server.distance(home)
        self.tickets[name] = ticket
        self._ask(name, path, state, home)

    def declare(self, name: str, path: str, state: bytes) -> None:
        """Have a native agent made here under this name, unless somebody has that done elsewhere first."""
        if name not in self.wanted and name not in self.known:
            self.wanted.add(name)
            self._ask(name, path, state, self.server.name)

    def _ask(self, name: str, path: str, state: bytes, home: str) -> None:
        self._to_registry(DEPLOY, f"{name}\n{home}\n{path}\n".encode() + state)

    def forget(self, name: str, id: str) -> None:
        """The agent of this name is gone for good."""
        self._to_registry(FORGET, f"{name}\n{id}".encode())

    def _to_registry(self, type: str, payload: bytes) -> None:
        server = self.server
        registry = server.topology.registry or server.name
        server.send(server.message(f"{server.name}/_names", (f"{registry}/_registry",), type, payload, flags=BOUNCE))

    # -- what others may say; all that can be wrong with it is found before anything changes ------------------------

    def _read_request(self, message: Message) -> tuple[str, str, str, bytes]:
        name, home, path = _texts(message, 4)
        if not name or home not in self.server.topology.servers:
            raise UnknownNotification(f"{message.type} names nobody, or a server that is not on this bus: {home!r}")
        return name, home, path, message.payload.split(b"\n", 3)[3]

    def _read_named(self, message: Message) -> tuple[str, str, str]:
        name, id, asker = _texts(message, 3)
        if not name or not is_id(id):
            raise UnknownNotification(f"{message.type} came without an agent's id")
        return name, id, asker

    def _read_forgotten(self, message: Message) -> tuple[str, str]:
        name, id = _texts(message, 2)
        return name, id

    # -- on the registry server ----------------------------------------------------------------------------------

    def _decide(self, message: Message) -> None:
        name, home, path, state = self._read_request(message)
        server = self.server
        source = f"{server.name}/_registry"
        asker = message.source.partition("/")[0]
        if name in self.known:
            server.send(server.message(source, (f"{asker}/_names",), REFUSED, message.payload, flags=BOUNCE))
            return
        id = declared_id(home, name)
        server.send(server.message(source, (id,), CREATE, path.encode() + b"\n" + state))
        self._tell_all(NAMED, f"{name}\n{id}\n{asker}")

    def _decide_to_forget(self, message: Message) -> None:
        name, id = self._read_forgotten(message)
        if self.known.get(name) == id:
            self._tell_all(FORGOTTEN, f"{name}\n{id}")

    def _tell_all(self, type: str, text: str) -> None:
        server = self.server
        everyone = tuple(f"{other}/_names" for other in server.topology.servers)
        server.send(server.message(f"{server.name}/_registry", everyone, type, text.encode(), flags=BOUNCE))

    # -- everywhere ------------------------------------------------------------------------------------------------

    def _named(self, message: Message) -> None:
        name, id, asker = self._read_named(message)
        server = self.server
        if name not in self.known:
            self.known[name] = id
            server.batch.meta[f"name:{name}"] = id
            server.engine.name_known(name)
        ticket = self.tickets.pop(name, 0) if asker == server.name else 0
        if ticket:
            server.requests.tickets.answer(ticket, {"name": name, "agent": self.known[name]})
        self.wanted.discard(name)
        server.clients.named(name)

    def _refused(self, message: Message) -> None:
        name, home, path, state = self._read_request(message)
        ticket = self.tickets.pop(name, 0)
        if ticket:
            self.server.requests.tickets.answer(ticket, f"the name {name} is taken: choose another")
        elif name in self.wanted and name not in self.known:  # it was taken then, and is forgotten by now
            self._ask(name, path, state, home)

    def _forgotten(self, message: Message) -> None:
        name, id = self._read_forgotten(message)
        if self.known.get(name) == id:
            del self.known[name]
            self.server.batch.meta[f"name:{name}"] = None
            self.server.clients.named(name)
