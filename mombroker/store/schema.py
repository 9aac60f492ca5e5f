"""The tables of a store, as migrations: one function per schema version, never changed once released.

Every version keeps the table `meta` with the row "schema", by which a program sees a store newer than itself.
"""

import sys

# sqlite-utils imports numpy and pandas where they are installed, for their types: most of what a server's start takes.
ABSENT = [name for name in ("numpy", "pandas") if name not in sys.modules]
for name in ABSENT:
    sys.modules[name] = None  # type: ignore[assignment]
try:
    from sqlite_utils import Database as Database
    from sqlite_utils import Migrations
finally:
    for name in ABSENT:
        del sys.modules[name]

migrations = Migrations("mombroker")
LIST = Migrations.migrations_table


def migrate(db: Database, known: int, wanted: int) -> None:
    """Bring the tables of schema `known`, 0 for none, to schema `wanted`. `known` alone tells which migrations were
    applied: the list that sqlite-utils keeps has no checksums."""
    if known == wanted:
        return
    if known:
        db.execute(f"DROP TABLE IF EXISTS {LIST}")
        migrations.ensure_migrations_table(db)
        rows = [("mombroker", name) for name in names(known)]
        db.conn.executemany(f"INSERT INTO {LIST} (migration_set, name) VALUES (?, ?)", rows)
    migrations.apply(db)


def names(schema: int) -> list[str]:
    """The migrations of a store of this schema."""
    return [f"version_{number}" for number in range(1, schema + 1)]


@migrations()
def version_1(db: Database) -> None:
    for statement in (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
        # Queues: rowid tables, appended and deleted by integer key.
        "CREATE TABLE queue_out (id INTEGER PRIMARY KEY, data BLOB NOT NULL)",  # link << 40 | sequence
        "CREATE TABLE queue_in (id INTEGER PRIMARY KEY, agent TEXT NOT NULL, data BLOB NOT NULL, attempts INTEGER,"
        " trying INTEGER, domain TEXT, peer TEXT, received INTEGER, delivered INTEGER)",
        "CREATE INDEX queue_in_agent ON queue_in (agent)",
        # The agents' ordered collections.
        "CREATE TABLE message (id INTEGER PRIMARY KEY, agent TEXT NOT NULL, collection TEXT NOT NULL,"
        " key INTEGER NOT NULL, head BLOB NOT NULL, body BLOB NOT NULL)",
        "CREATE INDEX message_place ON message (agent, collection, key)",
        "CREATE TABLE agent (id TEXT PRIMARY KEY, class TEXT NOT NULL, state BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE link (id INTEGER PRIMARY KEY, domain TEXT NOT NULL, peer TEXT NOT NULL, sent INTEGER,"
        " acked INTEGER, received INTEGER, incarnation TEXT)",
        # Measured: domain as text costs no more here than a small integer packed into one key.
        "CREATE TABLE core (domain TEXT, kind INTEGER, key INTEGER, blob BLOB NOT NULL,"
        " PRIMARY KEY (domain, kind, key)) WITHOUT ROWID",
        "CREATE TABLE task (id INTEGER PRIMARY KEY, agent TEXT NOT NULL, kind TEXT NOT NULL, due INTEGER,"
        " data BLOB NOT NULL)",
        # One row per commit: records id .. id + count - 1, from `first` to `last` (ns), after `offset` bytes of log.
        "CREATE TABLE log (id INTEGER PRIMARY KEY, count INTEGER NOT NULL, first INTEGER, last INTEGER,"
        " offset INTEGER NOT NULL, version INTEGER NOT NULL, columns BLOB NOT NULL)",
    ):
        db.execute(statement)


@migrations()
def version_2(db: Database) -> None:
    """What the commits since the last log row wrote, with this one; NULL in older rows."""
    for column in ("commits", "rows", "bytes"):
        db.execute(f"ALTER TABLE log ADD COLUMN {column} INTEGER")


@migrations()
def version_3(db: Database) -> None:
    """Messages that somebody has, or that back off, leave the collection "h" of their queue for a table of their own.

    An author's agent may have a collection of that name, too: that one stays.
    """
    db.execute(
        "CREATE TABLE held (id INTEGER PRIMARY KEY, agent TEXT NOT NULL, head BLOB NOT NULL, body BLOB NOT NULL)"
    )
    queues = (
        "collection = 'h' AND agent IN (SELECT id FROM agent WHERE class IN"
        " ('mombroker.agents.queue:Queue', 'mombroker.agents.subscription:Subscription'))"
    )
    db.execute(f"INSERT INTO held SELECT id, agent, head, body FROM message WHERE {queues}")
    db.execute(f"DELETE FROM message WHERE {queues}")


@migrations()
def version_4(db: Database) -> None:
    """Messages of one multicast that wait in many inboxes share their payload; 0 in rows that have their own."""
    db.execute("CREATE TABLE payload (id INTEGER PRIMARY KEY, last INTEGER NOT NULL, data BLOB NOT NULL)")
    db.execute("ALTER TABLE queue_in ADD COLUMN payload INTEGER NOT NULL DEFAULT 0")


@migrations()
def version_5(db: Database) -> None:
    """A checksum for each row (sums.py); NULL in older rows."""
    for table in (
        "meta",
        "queue_out",
        "queue_in",
        "message",
        "held",
        "agent",
        "link",
        "core",
        "task",
        "log",
        "payload",
    ):
        db.execute(f"ALTER TABLE {table} ADD COLUMN sum INTEGER")


@migrations()
def version_6(db: Database) -> None:
    """Messages of clients have typed properties instead of headers as text, which no program of before can read. Rows
    that are there stay, and are read as what they are (broker/older.py): a large store opens at once, and what is in an
    out-queue never changes."""


@migrations()
def version_7(db: Database) -> None:
    """A commit with records has its time in its row of the log, and no row in `meta` for it; the state of a queue does
    not count the bytes of what is in `held`. A program of before would take the store for one that was cut."""


@migrations()
def version_8(db: Database) -> None:
    """A column of a row of the log may be a map (columns.py), which no program of before can read."""


@migrations()
def version_9(db: Database) -> None:
    """The log of a replica (replica.py); empty in the store of a server that has none."""
    db.execute(
        "CREATE TABLE replica_log (idx INTEGER PRIMARY KEY, term INTEGER NOT NULL, kind INTEGER NOT NULL,"
        " data BLOB NOT NULL, sum INTEGER)"
    )
