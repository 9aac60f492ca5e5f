"""One replica of a server, as a state machine without I/O (Ongaro and Ousterhout, "In Search of an Understandable
Consensus Algorithm", 2014; Ongaro's thesis, 2014: pre-vote, leases, transfer, members that change one at a time).

Its driver calls `step` with what another replica says and `tick` now and then, takes what is to be done from `ready`,
does it in the order that `Ready` tells, and calls `written`. Committed entries it takes from `log` when it likes.
"""

from __future__ import annotations

from mombroker.core.errors import MomError
from mombroker.core.raft.incoming import Incoming
from mombroker.core.raft.log import Log, Storage
from mombroker.core.raft.messages import (
    BATCH,
    MEMBERS,
    NOTHING,
    Appended,
    AppendEntries,
    Entry,
    Envelope,
    InstallSnapshot,
    Members,
    Message,
    Received,
    RequestVote,
    Snapshot,
    TimeoutNow,
    Vote,
)
from mombroker.core.raft.progress import Progress
from mombroker.core.raft.ready import Ready, Times
from mombroker.core.words import many

FOLLOWER, TRIAL, CANDIDATE, LEADER = "follower", "trial candidate", "candidate", "leader"
DRIFT = 8  # a lease is shorter than what followers promise, by one part in so many
CLOSE = 100  # entries that a learner may be behind when it becomes a voter
LEADS = (AppendEntries, InstallSnapshot)  # what only leaders say


class NotNow(MomError):
    """A change of the members, or a transfer, that this replica does not begin now."""


class Replica:
    """1. What is committed is in the log.
    2. A leader has voted for itself, and the entry that its term began with is in its log.
    3. To a leader that knows what is committed at most one change of the members is not.

    id        of the store, which is never used again with another one
    leader    whom we follow; empty while we do not know
    began     our first entry as the leader of this term
    handed    the last term for which we stood because a leader with rows, of which we had just heard, wanted that
    everywhere  up to this entry all that have rows have the log, as of the last heartbeat: a witness keeps what is
                behind it
    """

    def __init__(self, id: str, storage: Storage, times: Times, now: int, chance: float):
        self.id, self.storage, self.times = id, storage, times
        self.log = Log(storage, 4 * times.bytes)
        self.term, self.vote = self._durable = storage.state()
        self.role, self.leader = FOLLOWER, ""
        self.chance = chance
        self.heard = now  # of a leader; at a start we may just have promised one not to vote
        self.others: dict[str, Progress] = {}  # while we lead
        self.began = self.handed = 0
        self.everywhere = 0
        self.target, self.wants_snapshot = "", False  # to whom we hand over; a follower needs one, and there is none
        self._hurried, self._given_up = False, 0  # whether the target was told, and when it has failed
        self._led = self._beat = now  # since when, and when the last heartbeat was
        self._votes: dict[str, bool] = {}
        self._gave_way = False  # to another one that wants to lead, since we last did
        self._ready = Ready()
        self._flying: Ready | None = None
        self._incoming: Incoming | None = None
        self._installing = False
        self._wait(now)

    # -- for the driver --------------------------------------------------------------------------------------------

    @property
    def settled(self) -> int:
        """Entries up to here are decided, and durable here, too: they may be applied."""
        return min(self.log.commit, self.log.stable)

    @property
    def members(self) -> Members:
        return self.log.members

    @property
    def leads(self) -> bool:
        """All that was ever decided is known here, and more may be proposed."""
        return self.role == LEADER and self.log.commit >= self.began and not self.target

    def leased(self, now: int) -> bool:
        """No other replica can lead yet: what is read here is the newest there is."""
        lasts = self.times.election - self.times.election // DRIFT
        return self.role == LEADER and not self._hurried and now - self._heard_by_majority(now, 0) < lasts

    def propose(self, data: bytes) -> int:
        """The index of a new entry, which may still come to nothing."""
        assert self.leads, "only a leader proposes"
        return self._append(BATCH, data)

    def change(self, members: Members) -> int:
        """Other members: the index of the entry. Raises NotNow."""
        if not self.leads:
            raise NotNow(f"{self.id} does not lead, or not yet: ask again in a second")
        if self.log.changes[-1][0] > self.log.commit:
            raise NotNow("the last change of the replicas is not decided yet: ask again in a second")
        old, new = set(self.members.voters), set(members.voters)
        if len(old ^ new) > 1 or not new:
            raise NotNow("one voter joins or leaves at a time")
        if not new - set(members.witnesses):
            raise NotNow("at least one voter with rows stays")
        for id in new - old:
            behind, joined = self.log.last - self._match(id), id in self.members.learners
            if behind > CLOSE or (joined and self._match(id) < self.log.changes[-1][0]):
                raise NotNow(f"{id} is {many(behind, 'entry', 'entries')} behind: let it catch up first")
        index = self._append(MEMBERS, members.pack())
        self._meet()
        return index

    def transfer(self, to: str, now: int) -> None:
        """Hand the lead over. If that fails there is an election. Raises NotNow."""
        if not self.leads:
            raise NotNow(f"{self.id} does not lead")
        if to == self.id or to not in self.members.voters or to in self.members.witnesses:
            raise NotNow(f"{to} is no other voter with rows")
        self.target, self._given_up = to, now + self.times.election
        self._hurry()

    def resign(self, now: int) -> None:
        """Lead no more: somebody else will."""
        if self.role == LEADER:
            self._follow(self.term, "", now)

    def ready(self) -> Ready | None:
        """What is to be done; None if nothing is. Not to be called again before `written`."""
        assert self._flying is None, "one Ready is under way"
        ready = self._ready
        if (self.term, self.vote) != self._durable:
            ready.state = (self.term, self.vote)
        ready.entries = self.log.unwritten
        if not (ready.state or ready.entries or ready.chunks or ready.install or ready.early or ready.messages):
            return None
        self._flying, self._ready = ready, Ready()
        return ready

    def written(self, ready: Ready, now: int) -> None:
        """All that `ready` wanted on disk is there."""
        assert ready is self._flying, "another Ready is under way"
        self._flying = None
        if ready.state is not None:
            self._durable = ready.state
        self.log.written(ready.entries)
        if ready.install is not None:
            self.log.installed(ready.install)
            self._incoming, self._installing = None, False
        if self.role == LEADER:
            self._advance(now)

    # -- time ------------------------------------------------------------------------------------------------------

    def tick(self, now: int, chance: float) -> None:
        """Time has passed; `chance` is drawn anew, from 0 up to 1."""
        self.chance = chance
        if self.role == LEADER:
            self._lead_on(now)
        elif now >= self._patience and self.id in self.members.voters:
            self._try(now)

    def _wait(self, now: int) -> None:
        """For a leader, so long. A witness leaves it to those that have rows, if there are some."""
        election = self.times.election
        self._patience = now + election + int(election * self.chance) + 2 * election * self._witnesses()

    def _again(self, now: int) -> None:
        """We were not elected, and nobody leads: the next try is sooner, and not that of all others, too."""
        soon = now + self.times.heartbeat + int(self.times.election * self.chance / 2)
        self._patience = soon + 2 * self.times.election * self._witnesses()

    def _give_way(self, now: int) -> None:
        """Another one would be elected, as far as we know: let it be, but not for ever."""
        if not self._gave_way:
            self._gave_way, self._patience = True, max(self._patience, now + self.times.election // 2)

    def _witnesses(self) -> bool:
        return self.id in self.members.witnesses

    def _lead_on(self, now: int) -> None:
        heard = self._heard_by_majority(now, self._led)
        if now - heard >= self.times.election or (self.target and now >= self._given_up):
            self.resign(now)
            return
        if now - self._beat >= self.times.heartbeat:
            self.beat(now)
        if self._witnesses() and self.leads:
            with_rows = [id for id in self.members.voters if id not in self.members.witnesses]
            best = max(with_rows, key=self._match)
            if self._match(best) >= self.began:
                self.transfer(best, now)

    def _heard_by_majority(self, now: int, least: int) -> int:
        """When, by our clock, we said the last thing that a majority has heard; at least `least`."""
        heard = {id: max(least, progress.heard) for id, progress in self.others.items()}
        return self._majority([now if id == self.id else heard.get(id, least) for id in self.members.voters])

    def _majority(self, values: list[int]) -> int:
        """What a majority has reached, of one value for each voter."""
        return sorted(values, reverse=True)[self.members.majority - 1]

    def _match(self, id: str) -> int:
        if id == self.id:
            return self.log.stable
        return self.others[id].match if id in self.others else 0

    # -- elections -------------------------------------------------------------------------------------------------

    def _try(self, now: int) -> None:
        """Ask first whether we would be elected: who would not leaves terms alone."""
        self.role, self.leader, self._votes = TRIAL, "", {self.id: True}
        self._gave_way = False
        self._again(now)
        self._ask(self.term + 1, trial=True)
        if self._elected():
            self._stand(now)

    def _stand(self, now: int, forced: bool = False) -> None:
        self.role, self.leader, self._votes = CANDIDATE, "", {self.id: True}
        self.term, self.vote = self.term + 1, self.id
        self._wait(now)
        self._ask(self.term, forced=forced)
        if self._elected():
            self._lead(now)

    def _ask(self, term: int, trial: bool = False, forced: bool = False) -> None:
        for id in self.members.voters:
            if id != self.id:
                self._say(id, RequestVote(term, self.log.last, self.log.term(self.log.last), trial, forced))

    def _elected(self) -> bool:
        return sum(self._votes.get(id, False) for id in self.members.voters) >= self.members.majority

    def _bound(self, now: int) -> bool:
        """There is a leader that relies on us, as far as we know."""
        return self.role == LEADER or now - self.heard < self.times.election

    def _asked(self, frm: str, asked: RequestVote, now: int) -> None:
        if self._bound(now) and not asked.forced:
            return
        if asked.term > self.term and not asked.trial:
            self._follow(asked.term, "", now)
        free = asked.term > self.term if asked.trial else asked.term == self.term and self.vote in ("", frm)
        granted = free and (asked.last_term, asked.last) >= (self.log.term(self.log.last), self.log.last)
        if granted and asked.trial:
            self._give_way(now)
        elif granted:
            self.vote = frm
            self._wait(now)
        self._say(frm, Vote(asked.term if granted else self.term, granted, asked.trial))

    def _voted(self, frm: str, vote: Vote, now: int) -> None:
        if vote.term > self.term and not (vote.trial and vote.granted):
            self._follow(vote.term, "", now)
        elif self.role == (TRIAL if vote.trial else CANDIDATE) and vote.granted:
            if vote.term == self.term + vote.trial:
                self._votes[frm] = True
                if self._elected():
                    self._stand(now) if vote.trial else self._lead(now)
        elif self.role == CANDIDATE and not vote.trial and vote.term == self.term:
            self._again(now)  # it votes for another one, which may not be elected either

    def _lead(self, now: int) -> None:
        self.role, self.leader, self._led = LEADER, self.id, now
        self.target, self._hurried = "", False
        self._meet()
        self.began = self._append(NOTHING, b"")
        self.beat(now)

    def _follow(self, term: int, leader: str, now: int) -> None:
        if term > self.term:
            self.term, self.vote = term, ""
        if self.role != FOLLOWER:
            self._wait(now)
        self.role, self.leader = FOLLOWER, leader
        self.others, self.target, self._hurried, self.wants_snapshot = {}, "", False, False

    # -- a leader sends its log ------------------------------------------------------------------------------------

    def _meet(self) -> None:
        """All members get the log, and nobody else."""
        last = self.log.last
        self.others = {id: self.others.get(id) or Progress(last + 1) for id in self.members.all if id != self.id}
        self._look()

    def _look(self) -> None:
        """How far all are that have rows; what is behind that is kept, so it need not be the newest."""
        members = self.members
        matches = [self._match(id) for id in members.all if id not in members.witnesses]
        self.everywhere = min(self.storage.applied(), *matches)

    def _append(self, kind: int, data: bytes) -> int:
        entry = Entry(self.log.last + 1, self.term, kind, data)
        self.log.append(entry)
        for id in self.others:
            self._send(id)
        return entry.index

    def beat(self, now: int) -> None:
        """Say that we lead; the answers make the lease last."""
        self._beat = now
        self._look()
        for id, other in self.others.items():
            other.waits = False  # what was under way may be lost
            if other.snapshot is not None:
                self._chunk(id, other)
            elif not self._send(id):
                cut = other.next <= self.storage.cut().index  # then this is only to be heard
                self._say_entries(id, self.log.last if cut else other.next - 1, [])

    def _send(self, id: str) -> bool:
        """Entries that it does not have, as far as it may be sent some; False if there was nothing to send."""
        other, log, done = self.others[id], self.log, False
        while other.open and other.next <= log.last and other.snapshot is None:
            if other.next <= self.storage.cut().index:
                return self._send_snapshot(id, other)
            entries = log.slice(other.next, log.last, self.times.bytes)
            self._say_entries(id, other.next - 1, entries)
            other.sent(entries[-1].index)
            done = True
        return done

    def _say_entries(self, id: str, prev: int, entries: list[Entry]) -> None:
        log = self.log
        message = AppendEntries(self.term, prev, log.term(prev), entries, log.commit, self.everywhere, self._beat)
        self._say(id, message)

    def _appended(self, frm: str, answer: Appended, now: int) -> None:
        other = self.others.get(frm)
        if self.role != LEADER or other is None:
            return
        other.heard = max(other.heard, answer.sent)
        if not answer.ok:
            other.differs(answer.prev, answer.index)
        elif other.agreed(answer.index):
            if answer.index > self.log.commit:
                self._advance(now)
            self._hurry()
        if self.role == LEADER and frm in self.others:
            self._send(frm)

    def _advance(self, now: int) -> None:
        """What a majority has on disk is decided, once something of our own term is."""
        index = self._majority([self._match(id) for id in self.members.voters])
        if index <= self.log.commit or not self._may_commit(index):
            return
        self.log.commit = index
        if self.id not in self.members.voters and self.log.changes[-1][0] <= index:
            self._follow(self.term, "", now)  # we have left

    def _may_commit(self, index: int) -> bool:
        return self.log.term(index) == self.term

    def _hurry(self) -> None:
        if self.target and self._match(self.target) == self.log.last and not self._hurried:
            self._hurried = True  # and what we say from now on may be old
            self._say(self.target, TimeoutNow(self.term))

    def _send_snapshot(self, id: str, other: Progress) -> bool:
        cut = self.storage.cut()
        if id in self.members.witnesses:  # which keeps no rows
            other.send_snapshot(Snapshot(cut.index, cut.term, cut.members, 0, 0))
        elif (snapshot := self.storage.offered()) is not None and snapshot.index >= cut.index:
            other.send_snapshot(snapshot)
        else:
            self.wants_snapshot = True
            return False
        self._chunk(id, other)
        return True

    def _chunk(self, id: str, other: Progress) -> None:
        snapshot = other.snapshot
        assert snapshot is not None, "no snapshot is sent"
        if snapshot.size and snapshot != self.storage.offered():  # there is a newer one
            other.snapshot = None
            self._send_snapshot(id, other)
            return
        data = self.storage.chunk(other.offset, self.times.bytes) if snapshot.size else b""
        self._say(id, InstallSnapshot(self.term, snapshot, other.offset, data, self._beat))

    def _received(self, frm: str, answer: Received, now: int) -> None:
        other = self.others.get(frm)
        if self.role != LEADER or other is None:
            return
        other.heard = max(other.heard, answer.sent)
        if other.snapshot is None or other.snapshot.index != answer.index:
            return
        if answer.next == other.snapshot.size:
            other.installed()
            self._advance(now)
            if self.role == LEADER:
                self._send(frm)
        elif answer.offset == other.offset and answer.next != answer.offset:
            other.offset = answer.next
            self._chunk(frm, other)

    # -- a follower takes it ---------------------------------------------------------------------------------------

    def step(self, envelope: Envelope, now: int) -> None:
        """Another replica says something."""
        frm, _, message = envelope
        match message:
            case RequestVote():
                self._asked(frm, message, now)
            case Vote():
                self._voted(frm, message, now)
            case _ if message.term < self.term:
                if isinstance(message, LEADS):  # it does not know that it leads no more
                    self._say(frm, Appended(self.term, False, 0, 0, 0))
            case AppendEntries() | InstallSnapshot():
                self._led_by(frm, message.term, now)
                if self._installing:
                    pass  # what it says of our log will not be true any more
                elif isinstance(message, AppendEntries):
                    self._entries(frm, message)
                else:
                    self._part(frm, message)
            case _:
                if message.term > self.term:
                    self._follow(message.term, "", now)
                elif isinstance(message, Appended):
                    self._appended(frm, message, now)
                elif isinstance(message, Received):
                    self._received(frm, message, now)
                elif self.role != LEADER and self.id in self.members.voters:  # TimeoutNow
                    if self._bound(now) and frm not in self.members.witnesses:
                        self.handed = self.term + 1
                    self._stand(now, forced=True)

    def _led_by(self, frm: str, term: int, now: int) -> None:
        assert term > self.term or self.role != LEADER, f"{frm} leads term {term}, as {self.id} does"
        self._follow(term, frm, now)
        self.heard = now
        self._wait(now)

    def _entries(self, frm: str, message: AppendEntries) -> None:
        log, prev, entries = self.log, message.prev, message.entries
        if prev < log.commit:  # what is decided is alike
            entries = [entry for entry in entries if entry.index > log.commit]
            prev = log.commit
        elif log.term(prev) != message.prev_term:
            self._say(frm, Appended(self.term, False, message.prev, self._alike(prev), message.sent))
            return
        log.merge(entries)
        self.everywhere = message.everywhere
        last = prev + len(entries)
        log.commit = max(log.commit, min(message.commit, last))
        self._say(frm, Appended(self.term, True, message.prev, last, message.sent))

    def _alike(self, prev: int) -> int:
        """Up to where our log may be as the leader's, if it is not at `prev`: no entry of a term that differs is."""
        log = self.log
        if prev > log.last:
            return log.last
        term = log.term(prev)
        while prev > log.commit and log.term(prev) == term:
            prev -= 1
        return prev

    def _part(self, frm: str, message: InstallSnapshot) -> None:
        """A chunk of a snapshot."""
        snapshot = message.snapshot
        if self._has(snapshot):
            self.log.commit = max(self.log.commit, snapshot.index)
            self._say(frm, Appended(self.term, True, snapshot.index, snapshot.index, message.sent))
            return
        coming = self._incoming
        if coming is None or coming.snapshot != snapshot:
            coming = self._incoming = Incoming(snapshot)
        if coming.takes(message):
            if message.data:
                self._ready.chunks.append((snapshot, message.offset, message.data))
            if coming.whole:
                self._installing, self._ready.install = True, snapshot
        self._say(frm, Received(self.term, snapshot.index, message.offset, coming.next, message.sent))

    def _has(self, snapshot: Snapshot) -> bool:
        """What it would bring is here already, and perhaps more, which others count upon."""
        return snapshot.index <= self.log.commit or self.log.term(snapshot.index) == snapshot.term

    # -- what leaves -----------------------------------------------------------------------------------------------

    def _say(self, to: str, message: Message) -> None:
        """What a leader says promises nothing that is not durable, once its term is."""
        leads = isinstance(message, LEADS) and self._durable == (self.term, self.vote)
        (self._ready.early if leads else self._ready.messages).append(Envelope(self.id, to, message))

    def check(self) -> None:
        """Assert the invariants."""
        log, open = self.log, [at for at, _ in self.log.changes[1:] if at > self.log.commit]
        assert log.commit <= log.last, f"{self.id} has {log.last} entries and {log.commit} decided"
        led = self.vote == self.id and log.term(self.began) in (self.term, -1)
        assert self.role != LEADER or led, f"{self.id} leads term {self.term} without a vote, or an entry of its own"
        assert not self.leads or len(open) <= 1, f"the members change at {open} at once"
        log.check()
        for other in self.others.values():
            other.check()
