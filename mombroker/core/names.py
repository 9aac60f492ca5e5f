"""Names of agents: decided once by the registry server, known on every server, applied in delivery order.

A decision is one multicast to all servers, sent after the creation of the agent: whoever knows the name can send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mombroker.core.errors import MomError, NoRoute, UnknownName, UnknownNotification
from mombroker.core.homes import Homes
from mombroker.core.ids import AGENT_NAME, ID_CHARS, OURS, check_address, declared_id, home_of, is_id
from mombroker.core.message import Message, new_message
from mombroker.core.meta import DRAINING, HEARD, MADE, NAME, OTHER
from mombroker.core.replicated import Replicated, Replication
from mombroker.core.topology import AgentDecl

CREATE = "_create"
DEPLOY, NAMED, REFUSED = "_deploy", "_named", "_refused"
UNPLACED = "_unplaced"
FORGET, FORGOTTEN, OUTDATED = "_forget", "_forgotten", "_outdated"
MOVE, MOVED = "_move", "_moved"
PAIR, PAIRED = "_pair", "_paired"
MOST_DOUBTED = 1_000
UNPAIR, UNPAIRED = "_unpair", "_unpaired"


def _texts(message: Message, count: int, texts: int = 3) -> list[str]:
    """The lines that its payload has, of so many that are no bytes. Raises UnknownNotification."""
    parts = message.payload.split(b"\n", count - 1)
    try:
        lines = [part.decode() for part in parts[:texts]]
    except ValueError as error:
        raise UnknownNotification(f"{message.type} came with what is no text: {error}") from None
    if len(parts) != count or max(map(len, lines)) > ID_CHARS:
        raise UnknownNotification(f"{message.type} came with {len(parts)} lines, or very long ones")
    return lines


def is_pattern(name: str) -> bool:
    """Does a declared agent stand for all whose names begin so?"""
    return name.endswith("*")


class Names(Replicated):
    """A name never changes its id unless it was forgotten in between, or its agent has moved to another server.

    1. While its agent has two homes, since it moves, all know both: if one of these is lost, the name means the other.
    2. A home that says that nobody is there says what it has heard. The registry goes by that unless it has had an
       agent of the name made there since.

    others      name -> the id at its other home
    made        at the registry: name -> the number of the message by which its agent is made
    homes       where agents live that have moved, but kept their ids
    wanted      names that the broker here has asked for
    heard       the number of the registry's last word on a name of ours; 0: there was none
    doubted     names that others may not know to be free, and who, of which the registry was told
    elsewhere   the server that what is new is made on, while this one is drained; empty: here
    distance    the links to another server; raises MomError for one that is not on this bus
    leaves      at the registry: the revision with which a server is to leave the bus; 0: it is not to
    is_here     does an agent live here, or is it on its way here?
    on_known    called with a name that is known now
    on_change   called with a name that is known now, or no longer
    on_move     called with a name whose agent has moved, its former id and its new one, and whether anybody is left at
                its former home
    on_pair     called with the id of an agent of which all know now that it is to have another home
    """

    agent, prefix = "_names", NAME

    def __init__(self, replication: Replication, distance: Callable[[str], int], homes: Homes):
        super().__init__(replication)
        self.distance, self.homes = distance, homes
        self.known = self.rows()
        self.others = {key.removeprefix(OTHER): str(id) for key, id in self.tx.reader.meta(OTHER).items()}
        self.made = {key.removeprefix(MADE): int(number) for key, number in self.tx.reader.meta(MADE).items()}
        self.install(self.tx.topology.agents)
        self.wanted: set[str] = set()
        self.doubted: set[tuple[str, str]] = set()
        self.heard = int(self.tx.reader.meta(HEARD).get(HEARD, 0))
        self.elsewhere = str(self.tx.reader.meta().get(DRAINING, ""))
        self.leaves: Callable[[str], int] = lambda server: 0
        self.is_here: Callable[[str], bool]
        self.on_known: Callable[[str], None]
        self.on_change: Callable[[str], None]
        self.on_move: Callable[[str, str, str, bool], None]
        self.on_pair: Callable[[str], None]
        self.define(DEPLOY, self._read_request, self._decide, NAMED, self._read_named, self._named)
        self.refusal(REFUSED, self._read_request, self._refused)
        self.refusal(UNPLACED, _read_unplaced, self._unplaced)
        self.define(FORGET, _read_given_up, self._let_go, FORGOTTEN, self._read_forgotten, self._forgotten)
        self._handle(OUTDATED, self._read_move, lambda message: self._tell_forgotten(*self._read_move(message)))
        self.define(MOVE, self._read_asked, self._agree, MOVED, self._read_move, self._moved)
        self.define(PAIR, self._read_asked, self._agree, PAIRED, self._read_move, self._paired)
        self.define(UNPAIR, self._read_forgotten, self._let_part, UNPAIRED, self._read_forgotten, self._unpaired)

    def install(self, declared: Iterable[AgentDecl]) -> None:
        """The names of agents that the topology declares are known to all servers."""
        self.known.update(
            {agent.name: declared_id(agent.server, agent.name) for agent in declared if not is_pattern(agent.name)}
        )

    def virtual(self, name: str) -> AgentDecl | None:
        """What the topology says of agents that are made when something comes for them, if this is a name of one."""
        if not AGENT_NAME.fullmatch(name):
            return None
        patterns = (each for each in self.tx.topology.agents if is_pattern(each.name))
        return next((each for each in patterns if name.startswith(each.name[:-1])), None)

    def id_of(self, name: str) -> str:
        """The id of the agent of this name; empty if there is none yet."""
        found = self.known.get(name)
        if found is None and (pattern := self.virtual(name)):
            found = declared_id(pattern.server, name)
        return found or ""

    def resolve(self, name: str) -> str:
        """The id of the agent of this name. Raises UnknownName, or MomError for what can never become a name."""
        try:
            return self.known[name]
        except KeyError:
            if id := self.id_of(name):
                return id
            if name.startswith(OURS) or (AGENT_NAME.fullmatch(name) and not name.startswith("_")):
                raise UnknownName(name) from None
            raise MomError(
                f"{ascii(name[:64])} cannot be an agent's name: letters, digits and . _ : - only, no leading _"
            ) from None

    def address(self, agent: str) -> str:
        """The id of an agent that somebody has named by its name or id. Raises MomError."""
        check_address(agent)
        if is_id(agent):
            self.distance(self.homes.home(agent))  # raises for a server that is not on this bus
            return agent
        id = self.resolve(agent)
        self.present(id, agent)
        return id

    def departed(self, id: str, shown: str) -> str:
        """Why an agent cannot be reached whose home has left the bus; empty if its home is on the bus."""
        home = self.homes.home(id)
        if home in self.tx.topology.servers:
            return ""
        return (
            f"{shown} lived on {home}, which has left this bus: take another name, or stop the bus and withdraw this "
            "one by `mom topology adopt --drop`"
        )

    def present(self, id: str, shown: str) -> None:
        """Raises NoRoute for an agent whose home has left the bus."""
        if id[: id.index("/")] not in self.tx.topology.servers and id not in self.homes.moved:
            raise NoRoute(self.departed(id, shown))

    def deploy(self, ticket: int, name: str, path: str, state: bytes, home: str) -> None:
        """Make an agent of an author under a new name; the reply to `ticket` follows the decision."""
        if not AGENT_NAME.fullmatch(name) or name.startswith(("_", *OURS)):
            raise MomError(
                f"{name!r} cannot be an agent's name: letters, digits and . _ : - only, no leading _ nor "
                f"{', '.join(OURS)}, which are the broker's own"
            )
        self.create(ticket, name, path, state, home)

    def create(self, ticket: int, name: str, path: str, state: bytes, home: str) -> None:
        """The same, also for a native agent, under a name of the broker's own."""
        if name in self.known:
            self.present(self.known[name], name)
        if name in self.known or name in self.tickets:
            raise MomError(f"the name {name} is taken by {self.known.get(name, 'a deployment under way')}")
        self.distance(home)
        if self.elsewhere and home == self.tx.name:
            raise MomError(
                f"{home} is drained, and takes nothing new: make {name} on {self.elsewhere}, or end that by "
                f"`mom server drain {home} --end`"
            )
        self.wait(name, ticket)
        self.ask(DEPLOY, _request(name, home, path, state))

    def declare(self, name: str, path: str, state: bytes) -> None:
        """Have a native agent made here under this name, unless somebody has that done elsewhere first."""
        if name not in self.wanted and name not in self.known:
            self.wanted.add(name)
            there = self.elsewhere in self.tx.topology.servers
            self.ask(DEPLOY, _request(name, self.elsewhere if there else self.tx.name, path, state))

    def free(self, name: str, id: str) -> None:
        """Raises MomError for a name that another agent has."""
        if (taken := self.known.get(name, id)) != id:
            raise MomError(f"the name {name} is taken by {taken}: choose another")

    def declared(self, name: str, still: bool) -> None:
        """The topology declares an agent of this name from now on, or no longer: then its name is kept."""
        if still:
            self.on_known(name)
            self.on_change(name)
        else:
            self.keep(name, self.known.get(name))

    def left(self, server: str) -> None:
        """A server is not of this bus any more, nor what lived there; what has another home lives there alone."""
        for name, other in list(self.others.items()):
            if home_of(other) == server:
                self._unpaired(name, other)
        for name, id in list(self.known.items()):
            if self.homes.home(id) == server and not self._left_to_other(name, id):
                self._forgotten(name, id)

    def _left_to_other(self, name: str, id: str) -> bool:
        """The home of an agent that moves is lost: True if it has another one, which it lives at from now on."""
        other = self.others.get(name)
        if other is None:
            return False
        self._unpaired(name, other)
        self.known[name] = other
        self.keep(name, other)
        self._made(name, 0)
        self.on_move(name, id, other, False)
        self._unmade(name, other)
        return True

    def again(self) -> None:
        """What we have asked for may be lost, with a server, or was refused, since a server was to leave."""
        wanted, self.wanted = self.wanted, set()
        self.doubted.clear()
        for name in sorted(wanted):  # who waits for it asks anew
            self.on_known(name)
            self.on_change(name)

    def begun(self) -> None:
        """We are in the place of a lost server, and perhaps were told what lived there before others had heard."""
        for name, id in list(self.known.items()):
            if self._is_nobody(name, id):
                self._forgotten(name, id)

    def _is_nobody(self, name: str, id: str) -> bool:
        """Was an agent of this name to live here, and does not?"""
        declared = any(agent.name == name for agent in self.tx.topology.agents)
        return self.homes.home(id) == self.tx.name and not declared and not self.is_here(id)

    def _unmade(self, name: str, id: str) -> None:
        """Nobody has the name of an agent that was to live here, and does not."""
        if self._is_nobody(name, id):
            self._give_up(name, id)

    def forget(self, name: str, id: str) -> None:
        """The agent of this name is gone for good."""
        self.ask(FORGET, f"{name}\n{id}".encode())

    def _give_up(self, name: str, id: str) -> None:
        """Nobody is there of this name, which is ours, by what we have heard: one may be on its way."""
        self.ask(FORGET, f"{name}\n{id}\n{self.heard}".encode())

    def nobodys(self, name: str, id: str) -> None:
        """What was sent to an agent of this name has come to nothing. If it was to live here, and does not, its name is
        free: a successor may have been told it of the server before it."""
        if self.known.get(name) == id and self._is_nobody(name, id):
            self._forgotten(name, id)
            self._give_up(name, id)

    def outdated(self, name: str, id: str, server: str) -> None:
        """What this server has sent to an agent of this name that is to live here has come to nothing. It may not have
        heard that nobody has the name: that is lost, perhaps."""
        whose = name, server
        if server == self.tx.name or whose in self.doubted or self.known.get(name) == id:
            return
        if self._is_nobody(name, id):
            if len(self.doubted) >= MOST_DOUBTED:
                self.doubted.clear()
            self.doubted.add(whose)
            self.ask(OUTDATED, f"{name}\n{id}\n{server}/{self.agent}".encode())

    def told(self) -> Iterator[tuple[str, str, bytes]]:
        """What must be told of all names; see Newcomers.tables."""
        for name, id in self.known.items():
            other = f"\n{self.others[name]}" if name in self.others else ""
            yield self.tx.topology.registry or self.tx.name, NAMED, f"{name}\n{id}\n{other}".encode()

    def pair(self, name: str, id: str, to: str) -> None:
        """The agent of this name is to have another home, too."""
        self._ask_to_move(PAIR, name, id, to)

    def move(self, name: str, id: str, to: str) -> None:
        """The agent of this name lives elsewhere from now on."""
        self._ask_to_move(MOVE, name, id, to)

    def _ask_to_move(self, type: str, name: str, id: str, to: str) -> None:
        self.ask(type, "\n".join([name, id, to, *map(str, self.homes.epochs(home_of(id), home_of(to)))]).encode())

    def unpair(self, name: str, other: str) -> None:
        """There is nobody at the other home of the agent of this name any more."""
        self.ask(UNPAIR, f"{name}\n{other}".encode())

    def successor(self, id: str) -> str:
        """The id that an agent has now which once had this one, and has moved since; empty if there is none."""
        now = self.known.get(id.partition("/")[2], "")
        return now if now != id else ""

    # -- what others may say; all that can be wrong with it is found before anything changes ------------------------

    def _read_request(self, message: Message) -> tuple[str, str, str, bytes]:
        name, home, path = _texts(message, 4)
        if not name or home not in self.tx.topology.servers:
            raise UnknownNotification(f"{message.type} names nobody, or a server that is not on this bus: {home!r}")
        return name, home, path, message.payload.split(b"\n", 3)[3]

    def _read_named(self, message: Message) -> tuple[str, str, str, int, str]:
        """The last: by which message the registry itself says so, or 0; and the id at its other home."""
        lines = 4 if message.payload.count(b"\n") == 3 else 3
        name, id, asker, *other = _texts(message, lines, lines)
        if not name or not all(map(is_id, [id, *other])):
            raise UnknownNotification(f"{message.type} came without an agent's id")
        decided = message.number if home_of(message.source) == self.tx.topology.registry else 0
        return name, id, asker, decided, "".join(other)

    def _read_forgotten(self, message: Message) -> tuple[str, str]:
        name, id = _texts(message, 2)
        return name, id

    def _read_asked(self, message: Message) -> tuple[str, str, str, int, int]:
        """The last are the epochs of `Homes.epochs`; an older server does not say them."""
        epochs = message.payload.split(b"\n")[3:]
        if len(epochs) not in (0, 2) or not all(epoch.isdigit() and len(epoch) < 20 for epoch in epochs):
            raise UnknownNotification(f"{message.type} came with epochs that are no numbers")
        left, reached = map(int, epochs or (0, 0))
        return *self._read_move(message, 3 + len(epochs)), left, reached

    def _read_move(self, message: Message, lines: int = 3) -> tuple[str, str, str]:
        name, id, to = _texts(message, lines)
        if not name or not is_id(id) or not is_id(to) or home_of(to) not in self.tx.topology.servers:
            raise UnknownNotification(f"{message.type} names nobody, or a server that is not on this bus: {to!r}")
        return name, id, to

    # -- on the registry server ----------------------------------------------------------------------------------

    def _decide(self, asker: str, name: str, home: str, path: str, state: bytes) -> bytes | None:
        if name in self.known:
            self.refuse(asker, REFUSED, _request(name, home, path, state))
            return None
        if number := self.leaves(home):
            self.refuse(asker, UNPLACED, f"{number}\n".encode() + _request(name, home, path, state))
            return None
        id, source = declared_id(home, name), f"{self.tx.name}/_registry"
        message = new_message(self.tx, source, (id,), CREATE, path.encode() + b"\n" + state)
        self._send(message)
        self._made(name, message.number)
        return f"{name}\n{id}\n{asker}".encode()

    def _let_go(self, asker: str, name: str, id: str, heard: int = 0) -> bytes | None:
        late = 0 < heard < self.made.get(name, 0)
        return f"{name}\n{id}".encode() if self.known.get(name) == id and not late else None

    def _tell_forgotten(self, name: str, id: str, to: str) -> None:
        """Whoever still knows the name is told again that nobody has it."""
        if self.known.get(name) != id:
            self._tell((home_of(to),), FORGOTTEN, f"{name}\n{id}".encode())

    def _made(self, name: str, number: int) -> None:
        """By which message its agent is made; 0: it lives elsewhere by now, or nowhere."""
        if self.made.pop(name, 0) != number:
            self.tx.rows.meta[f"{MADE}{name}"] = number or None
        if number:
            self.made[name] = number

    def _agree(self, asker: str, name: str, id: str, to: str, left: int, reached: int) -> bytes | None:
        if self.known.get(name) != id or self.homes.late(home_of(id), home_of(to), left, reached):
            return None
        return f"{name}\n{id}\n{to}".encode()

    def _let_part(self, asker: str, name: str, other: str) -> bytes | None:
        return f"{name}\n{other}".encode() if self.others.get(name) == other else None

    # -- everywhere ------------------------------------------------------------------------------------------------

    def _named(self, name: str, id: str, asker: str, decided: int = 0, other: str = "") -> None:
        if self.homes.home(id) not in self.tx.topology.servers:  # it has left since this was decided
            self.settle(name, self.departed(id, name))
            self.wanted.discard(name)
            return
        if decided and self.homes.home(id) == self.tx.name:
            self.heard = self.tx.rows.meta[HEARD] = decided
        if name not in self.known:
            self.known[name] = id
            self.keep(name, id)
            if not asker and self._is_nobody(name, id):  # who waits for the name here waits until it is free
                self._give_up(name, id)
                return
            self.on_known(name)
        if not asker:  # it is told again, as after a loss
            if decided:  # perhaps that it has moved is lost
                self._moved(name, self.known[name], id)
                self._pair(name, other if self.known[name] == id else "")
            self._unmade(name, id)
        if asker == self.tx.name:
            self.settle(name, {"name": name, "agent": self.known[name]})
        self.wanted.discard(name)
        self.on_change(name)

    def _refused(self, name: str, home: str, path: str, state: bytes) -> None:
        if self.settle(name, f"the name {name} is taken: choose another"):
            return
        if name in self.wanted and name not in self.known:  # it was taken then, and is forgotten by now
            self.ask(DEPLOY, _request(name, home, path, state))

    def _unplaced(self, number: int, name: str, home: str, path: str, state: bytes) -> None:
        """The home leaves the bus. What the broker needs is made here instead; if it is we who leave, it waits for
        `again`."""
        self.settle(
            name,
            f"{home} leaves the bus with the change to revision {number} of the topology, which is under way: make "
            f"{name} on another server, or give the change up by `mom topology abort`",
        )
        if name in self.wanted and name not in self.known and home != self.tx.name:
            self.ask(DEPLOY, _request(name, self.tx.name, path, state))

    def _forgotten(self, name: str, id: str) -> None:
        if self.known.get(name) == id:
            del self.known[name]
            self.keep(name, None)
            self._made(name, 0)
            self._pair(name, "")
            self.on_change(name)
            if name in self.wanted:  # its creation was lost
                self.wanted.discard(name)
                self.on_known(name)

    def _moved(self, name: str, id: str, to: str) -> None:
        if self.known.get(name) == id != to:
            self.known[name] = to
            self.keep(name, to)
            self._made(name, 0)
            self._pair(name, id if self.others.get(name) == to else "")
            self.on_move(name, id, to, True)

    def _paired(self, name: str, id: str, to: str) -> None:
        if self.known.get(name) == id != to:
            self._pair(name, to)
            self.on_pair(id)

    def _unpaired(self, name: str, other: str) -> None:
        if self.others.get(name) == other:
            self._pair(name, "")

    def _pair(self, name: str, other: str) -> None:
        if self.others.pop(name, "") != other:
            self.tx.rows.meta[f"{OTHER}{name}"] = other or None
        if other:
            self.others[name] = other

    def check(self) -> None:
        for name, other in self.others.items():
            assert self.known.get(name, other) != other, "1: the other home is the only one"


def _read_given_up(message: Message) -> tuple[str, str, int]:
    """The last is what its home has heard; an older server does not say it, nor does one whose agent was there."""
    counts = message.payload.count(b"\n") == 2
    name, id, *heard = _texts(message, 3 if counts else 2)
    if counts and not (heard[0].isdecimal() and len(heard[0]) < 20):
        raise UnknownNotification(f"{message.type} came with what is no number of a message")
    return name, id, int("".join(heard) or 0)


def _read_unplaced(message: Message) -> tuple[int, str, str, str, bytes]:
    number, name, home, path = _texts(message, 5, 4)
    if not (number.isdecimal() and len(number) < 20 and name and home):
        raise UnknownNotification(f"{message.type} names nobody, or no revision: {number!r}")
    return int(number), name, home, path, message.payload.split(b"\n", 4)[4]


def _request(name: str, home: str, path: str, state: bytes) -> bytes:
    return f"{name}\n{home}\n{path}\n".encode() + state
