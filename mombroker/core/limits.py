"""Every bound of a server, by name; the topology file's [limits] table sets them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mombroker.core.times import SECOND


@dataclass(slots=True)
class Limits:
    max_message: int = 8 << 20  # bytes of one packed notification
    max_transactions: int = 256 << 20  # bytes in the open transactions of all clients of a server
    max_unfinished: int = 64 << 20  # bytes of clients' frames that are not whole yet, of all clients of a server
    max_store: int = 16 << 30  # bytes on disk; beyond it no work from outside is taken
    min_free: int = 0  # bytes free on the disk of the store; below no work from outside is taken. 0: 2 %, at most 1 GiB
    max_memory: int = 0  # bytes of memory that the process takes; beyond it no work from outside is taken. 0: any
    max_held: int = 10_000  # packets of one link that wait for their causes
    max_gate: int = 100_000  # messages that wait while domains are changed; beyond it no work from outside is taken
    max_inbox: int = 20_000  # messages of all inboxes in memory; the rest waits on disk
    max_residents: int = 10_000  # agents in memory
    state_rows: int = 256  # of a table that a member of a group gives, or a new one takes, in a turn
    cast_window: int = 1_024  # casts of a member of a group that others may still lack: it waits with more of them
    probe_ns: int = SECOND  # of a group: its home asks so often who is up; who has not answered three times is down
    max_attempts: int = 5  # reactions to one message
    max_traceback: int = 8_000  # characters kept in a dead letter
    retry_first_ns: int = SECOND // 10  # until a failed reaction is tried again, the first time
    retry_factor: int = 4  # so much longer after each further failure
    retry_max_ns: int = 60 * SECOND  # at most
    trying_boots: int = 3  # unclean stops in a row during one message's reaction
    link_window: int = 4_096  # packets that a peer may send ahead
    link_window_bytes: int = 8 << 20  # and bytes of them
    turn_reactions: int = 1_024  # reactions until sockets are looked after
    turn_work: int = 1_500  # messages that queues give until others are looked after; looking at one counts as four
    batch_bytes: int = 4 << 20  # of what one commit writes: with more it is closed
    batch_rows: int = 4_096  # packets in one commit: with more it is closed

    def take(self, other: Limits) -> None:
        """Take over all bounds of `other`: whoever holds these has the new ones from now on."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))
