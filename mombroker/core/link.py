"""One neighbour in one domain: persistent sequences, the out-queue's window in memory, credit. No sockets.

Everything that decides what may be (re)sent to a neighbour, and what is a duplicate from it, is in this file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from mombroker.core.batch import LINK_BITS, LinkRow
from mombroker.core.errors import PeerError, PeerRefused, StoreError
from mombroker.core.events import LinkFrame, Ready
from mombroker.core.hello import Hello
from mombroker.core.meta import ALONE
from mombroker.core.transaction import COMMIT, LINGER, Transaction
from mombroker.core.words import many

LAST = (1 << LINK_BITS) - 1  # sequence of a link
FRAME_PACKETS = 256
FRAME_BYTES = 256 * 1024


class Links:
    """The links of a server together.

    touched   those whose rows or frames are to be looked at when the batch closes
    alone     peer -> what we had sent it when we started, or first did without having met it since
    meet      peers of new links, to be met once the batch is durable
    """

    __slots__ = ("tx", "touched", "alone", "meet", "_last_id", "_closed", "_ended", "_said")

    def __init__(self, tx: Transaction, meta: Mapping[str, str | int], rows: list[LinkRow]):
        self.tx = tx
        self.touched: dict[Link, None] = {}
        self.alone = {key.removeprefix(ALONE): int(value) for key, value in meta.items() if key.startswith(ALONE)}
        self._last_id = max((row.id for row in rows), default=0)
        self.meet: list[str] = []
        self._closed: list[tuple[Link, int, int]] = []  # with their last sequences, of the batch under way
        self._ended: list[tuple[int, list[LinkFrame]]] = []  # connections of links that are no more, and last frames
        self._said: list[tuple[int, list[LinkFrame]]] = []

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def end(self, link: Link) -> None:
        """A link is no more, nor anything that waits on it; what it has received is acknowledged a last time."""
        rows, first = self.tx.rows, link.id << LINK_BITS
        rows.links[link.id] = None
        rows.queue_out = [row for row in rows.queue_out if not first < row[0] <= first | LAST]
        rows.acked[link.id] = link.sent
        if self.alone.pop(link.peer, None) is not None or link.alone is not None:
            rows.meta[ALONE + link.peer] = None
        self.touched.pop(link, None)
        if link.conn:
            self._ended.append((link.conn, [("ack", link.domain, link.received, max(link.granted, link.received))]))
            link.conn = 0
        self.tx.urgency = COMMIT

    def cut(self, link: Link) -> None:
        """Nothing is sent to a neighbour any more, nor taken from it, until a connection is made anew."""
        if link.conn:
            self._ended.append((link.conn, []))
            link.down()

    def say(self, link: Link, frame: LinkFrame) -> None:
        """Have a frame leave on a connection that is up, after the open batch."""
        self._said.append((link.conn, [frame]))
        self.tx.urgency = COMMIT

    def close(self, ready: Ready) -> None:
        """The open batch closes: rows of links join it, frames leave after it."""
        ready.frames, self._said = self._said, []
        ready.meet, self.meet = self.meet, []
        for conn, frames in self._ended:
            ready.frames.append((conn, frames))
            ready.hang_up.append(conn)
        self._ended = []
        touched = [*self.touched]
        self.touched.clear()
        self._closed = []
        for link in touched:
            frames = link.frames()
            if frames:
                ready.frames.append((link.conn, frames))
            if not link.conn and link.waiting():
                ready.dial.append(link.peer)
            if link.changed:
                link.changed = False
                ready.batch.links[link.id] = link.row()
                self._closed.append((link, link.sent, link.received))
            if link.sendable():
                self.touched[link] = None  # the rest is on disk and can be read after the commit

    def committed(self) -> None:
        """The batch that was closed last is durable."""
        for link, sent, received in self._closed:
            link.committed(sent, received)
        if self.touched:
            self.tx.urgency = COMMIT


class Link:
    """The sequences of one pair of neighbours (protocols §0.3).

    1. acked <= durable <= sent; each sequence in (acked, sent] has its row in queue_out, open batch included.
    2. A packet is stored before it is sent and kept, byte for byte, until the peer has it durably.
    3. No sequence above the peer's credit `limit` is ever sent; a peer of which nothing is held has credit.
    4. `window` holds a contiguous run of sequences that have not been sent on this connection, up to the last one
       unless `spilled`.
    """

    __slots__ = (
        "tx", "touched", "id", "domain", "peer", "member", "incarnation", "sent", "durable", "acked", "received",
        "received_durable", "conn", "next", "limit", "granted", "owes", "window", "window_bytes", "held", "mean_bytes",
        "changed", "last_seen", "duplicates", "dialled", "alone", "broken", "most", "unheld", "awaited",
    )  # fmt: skip

    def __init__(self, links: Links, row: LinkRow, member: int):
        self.tx, self.touched = links.tx, links.touched
        self.id, self.domain, self.peer, self.incarnation = row.id, row.domain, row.peer, row.incarnation
        self.member = member
        self.sent = self.durable = row.sent
        self.acked = row.acked
        self.received = self.received_durable = row.received
        self.conn = 0  # 0 = down
        self.next = self.acked + 1  # next sequence to put on the connection
        self.limit = 0
        self.granted = 0
        self.owes = False  # the peer waits for an acknowledgement
        self.window: deque[tuple[int, bytes]] = deque()
        self.window_bytes = 0
        self.held = 0  # packets from this peer that wait for their causes
        self.mean_bytes = 256
        self.changed = False  # the row differs from the store's
        self.last_seen = 0
        self.duplicates = 0
        self.dialled = False
        self.most = 0  # the last sequence that can have been put on a connection before this one
        self.awaited = False  # what is held waits for what this peer sends next
        self.unheld = False  # what is held stops nobody: it may wait for what is lost
        self.broken = ""  # why nothing more can be sent: the next packet is damaged in the store
        # The most that the peer can have received, if we have not met it since: a peer that claims more has met another
        # copy of our store.
        self.alone: int | None = links.alone.get(self.peer, row.sent)
        if self.peer not in links.alone:
            self.tx.rows.meta[ALONE + self.peer] = row.sent

    def row(self) -> LinkRow:
        return LinkRow(self.id, self.domain, self.peer, self.sent, self.acked, self.received, self.incarnation)

    # -- out ---------------------------------------------------------------------------------------------------

    def enqueue(self, data: bytes) -> None:
        """Store a stamped packet; queue order is stamp order."""
        self.sent = seq = self.sent + 1
        tx, size = self.tx, len(data)
        rows = tx.rows
        rows.queue_out.append((self.id << LINK_BITS | seq, data))
        rows.bytes += size
        if self.conn and self.window_bytes < tx.limits.link_window_bytes:
            window = self.window
            if not window or window[-1][0] == seq - 1:
                window.append((seq, data))
                self.window_bytes += size
        self.changed = True
        self.touched[self] = None
        tx.urgency = COMMIT

    def touch(self, urgent: bool = True) -> None:
        """Its row or frames are to be looked at when the batch closes."""
        self.touched[self] = None
        tx = self.tx
        tx.urgency = COMMIT if urgent else tx.urgency or LINGER

    def waiting(self) -> bool:
        """True when the peer lacks something that we have."""
        return self.sent > self.acked

    def sendable(self) -> bool:
        return self.conn != 0 and self.next <= self.sent and self.next <= self.limit and not self.broken

    def frames(self) -> list[LinkFrame]:
        """What to write now: an acknowledgement with credit first, then packets within the peer's credit.

        Packets of the open batch are included: these frames leave only after that batch is durable.
        """
        out: list[LinkFrame] = []
        if not self.conn:
            return out
        limit = self.grant()
        if self.owes or self.credit_is_news(limit):
            out.append(("ack", self.domain, self.received, limit))
            self.granted, self.owes = limit, False
        while self.next <= self.sent and self.next <= self.limit:
            run = self._take()
            if not run:
                break  # on disk, but not durable yet: after the commit
            out.append(("data", self.domain, self.next, run))
            self.next += len(run)
        return out

    def _take(self) -> list[bytes]:
        window = self.window
        while window and window[0][0] < self.next:
            self.window_bytes -= len(window.popleft()[1])
        room = min(FRAME_PACKETS, self.limit - self.next + 1)
        run: list[bytes] = []
        size = 0
        if window and window[0][0] == self.next:
            while window and len(run) < room and size < FRAME_BYTES:
                data = window.popleft()[1]
                run.append(data)
                size += len(data)
            self.window_bytes -= size
            return run
        upto = min(self.durable, window[0][0] - 1 if window else self.durable)
        if self.next <= upto:
            for _, data in self._stored(upto, room):
                run.append(data)
                size += len(data)
                if size >= FRAME_BYTES:
                    break
        return run

    def _stored(self, upto: int, limit: int) -> list[tuple[int, bytes]]:
        """The next packets, from disk. Nothing more is sent once they are damaged: whoever takes the later ones would
        never know of these."""
        if self.broken:
            return []
        try:
            rows = self.tx.reader.queue_out(self.id, self.next - 1, upto, limit)
        except StoreError as error:
            self.broken = str(error)
        else:
            if [seq for seq, _ in rows] == list(range(self.next, self.next + len(rows))) and rows:
                return rows
            self.broken = f"the store lacks packets for {self.peer} in domain {self.domain} from {self.next} on"
        self.tx.note(f"nothing more is sent to {self.peer}: {self.broken}")
        return []

    def acknowledged(self, upto: int, limit: int) -> None:
        """The peer has everything up to `upto` durably, and takes sequences up to `limit`."""
        if upto > self.durable:
            raise PeerError(f"{self.peer} acknowledged {upto} in {self.domain}; only {self.durable} was sent")
        self.limit = max(self.limit, limit)
        if upto > self.acked:
            self.acked = upto
            self.next = max(self.next, upto + 1)
            self.changed = True
            self.tx.rows.acked[self.id] = upto
            self.tx.urgency = self.tx.urgency or LINGER
        self.touch(urgent=self.sendable())

    # -- in ----------------------------------------------------------------------------------------------------

    def fresh(self, first: int, packets: list[bytes]) -> list[bytes]:
        """The packets that were not received before, to be `took` one by one. A gap is an error of the peer."""
        known = self.received + 1 - first
        if known < 0:
            raise PeerError(f"{self.peer} sent {first} in {self.domain} after {self.received}: a gap")
        self.owes = True
        self.touch()
        if known:
            self.duplicates += min(known, len(packets))
            packets = packets[known:]
        if packets:
            mean = sum(map(len, packets)) // len(packets)
            self.mean_bytes += (mean - self.mean_bytes) >> 2 if mean < self.mean_bytes else mean - self.mean_bytes
        return packets

    def took(self) -> None:
        """The next packet could be read and is now ours to keep."""
        self.received += 1
        self.changed = True

    def room(self) -> int:
        """How many further packets we take from this peer: fewer when they are large, none while too many are held."""
        limits = self.tx.limits
        if self.held >= limits.max_held and not (self.unheld or self.awaited):
            return 0
        if self.tx.full:
            return 1
        return max(1, min(limits.link_window, limits.link_window_bytes // max(1, self.mean_bytes)))

    def grant(self) -> int:
        return max(self.granted, self.received + self.room())

    def credit_is_news(self, limit: int) -> bool:
        """A new credit is sent by itself: always when the peer has none left, else in big steps."""
        return limit > self.granted and (self.granted <= self.received or 2 * (limit - self.granted) >= self.room())

    def hold(self, count: int) -> None:
        """`count` more (or fewer) packets of this peer are held."""
        before = self.held
        self.held += count
        assert self.held >= 0, "more packets released than were held"
        if before >= self.tx.limits.max_held > self.held:
            self.touch()

    # -- connection --------------------------------------------------------------------------------------------

    def numbers(self) -> tuple[int, int, int, int]:
        """sent, acked, received, limit for the handshake: committed state only."""
        return self.durable, min(self.acked, self.durable), self.received_durable, self.received_durable + self.room()

    def admit(self, hello: Hello) -> None:
        """Raises PeerRefused when the two stores cannot both be whole. Both ends read the sentence."""
        me, peer, where = self.tx.name, hello.server, self.domain
        if self.incarnation and hello.incarnation != self.incarnation:
            raise PeerRefused(
                f"the store of {peer} is not the one that {me} knew (its incarnation has changed); restore that one, "
                f"declare it lost by `mom server lost {peer}`, or run `mom domain reset` for {peer}"
            )
        # An old copy that has been at work since may have sent as many as the peer has received, but others.
        sent = self.durable if self.alone is None else min(self.durable, self.alone)
        if hello.received > sent:
            more = many(hello.received, "message")
            raise _old(me, f"{peer} has received {more} of {me} in {where}, which sent only {sent}")
        if hello.acked > self.received_durable:
            acked, had = many(hello.acked, "message"), self.received_durable
            raise _old(me, f"{me} has acknowledged {acked} of {peer} in {where}, and has only {had}")
        if hello.sent < self.received_durable:
            more = many(self.received_durable, "message")
            raise _old(peer, f"{me} has received {more} of {peer} in {where}, which sent only {hello.sent}")
        if hello.received < self.acked:
            acked, had = many(self.acked, "message"), hello.received
            raise _old(peer, f"{peer} has acknowledged {acked} of {me} in {where}, and has only {had}")

    def seen(self) -> int:
        """The last sequence that the peer can have received."""
        return max(self.most, self.next - 1) if self.alone is None else self.alone

    def up(self, conn: int, hello: Hello) -> None:
        # What the peer has not written yet it may be about to write.
        self.conn, self.most = conn, max(self.most, self.next - 1, self.alone or 0)
        self.dialled = False
        self.window.clear()
        self.window_bytes = 0
        self.limit = hello.limit
        self.granted = 0
        self.owes = True  # tell our credit afresh
        if self.alone is not None:
            self.alone = None
            self.tx.rows.meta[ALONE + self.peer] = None
        if not self.incarnation:
            self.incarnation = hello.incarnation
            self.changed = True
        if hello.received > self.acked:
            self.acked = hello.received
            self.changed = True
            self.tx.rows.acked[self.id] = self.acked
        self.next = self.acked + 1
        self.touch()

    def down(self) -> None:
        self.conn = 0
        self.window.clear()
        self.window_bytes = 0
        if self.waiting():
            self.touch()

    def committed(self, sent: int, received: int) -> None:
        """The batch that was open when these were our last sequences is durable."""
        self.durable = sent
        self.received_durable = received

    def check(self) -> None:
        assert self.acked <= self.durable <= self.sent, (self.peer, self.acked, self.durable, self.sent)
        assert not self.conn or self.next <= max(self.limit, self.acked) + 1, "sent beyond the peer's credit"
        seqs = [seq for seq, _ in self.window]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))) if seqs else True
        assert self.received_durable <= self.received


def _old(server: str, fact: str) -> PeerRefused:
    return PeerRefused(
        f"{fact}: the store of {server} was wiped or restored from an old copy; run `mom domain reset` for {server}"
    )
