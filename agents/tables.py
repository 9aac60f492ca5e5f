"""State that is too large for one blob: collections of items in order, and tables of rows by key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from mombroker.agents.notifications import pack, unpack
from mombroker.core.batch import ItemRow
from mombroker.core.collection import Collection
from mombroker.core.passage import KEPT_IDS, shown
from mombroker.core.reaction import Reaction
from mombroker.core.table import LAST
from mombroker.core.table import Table as Rows

KEY_CHARS = 500
_INT = 1 << 63


class Agent(Protocol):
    """What these need of the agent that has them."""

    def _now_reacting(self) -> Reaction: ...


@dataclass(slots=True)
class Item:
    """One item of an Items collection."""

    id: int
    key: int
    value: Any
    row: int = field(default=0, repr=False, compare=False)  # where it is stored


class Items:
    """Annotate a field with this for a list that is too large for one blob: an ordered, transactional collection.

    Items are in order of (key, id): `key` is any 64-bit integer of yours, and several may have the same one. Each add
    or remove is one row of the reaction's commit. An item never changes: remove it, and add another one.
    """

    def __init__(self, agent: Agent, name: str):
        self._agent, self._name = agent, name

    def _rows(self) -> Collection:
        return self._agent._now_reacting().collection(self._name)

    def __len__(self) -> int:
        return len(self._rows())

    def add(self, value: Any, key: int = 0) -> int:
        """Returns the item's id. Raises TypeError for a value that is not plain, or a key that is no 64-bit integer;
        MomError for a value above `max_message`."""
        if not isinstance(key, int) or not -_INT <= key < _INT:
            raise TypeError(f"{self._name}: a key is an integer of 64 bits, not {ascii(key)[:64]}")
        packed = pack(value, self._name)
        self._agent._now_reacting().check_size(f"an item of {self._name}", len(packed))
        return self._rows().add(key, b"", packed)

    def get(self, id: int) -> Item | None:
        row = self._find(id)
        return row and _item(row)

    def remove(self, id: int) -> bool:
        """False if there is no such item."""
        row = self._find(id)
        if row is None:
            return False
        if row.head and (kept := self._kept(id)) is not None:
            self._ids().remove(kept.id)
        return self._rows().remove(row.id) is not None

    def _find(self, id: int) -> ItemRow | None:
        rows = self._rows()
        row = rows.get(id)
        if row is None and (kept := self._kept(id)) is not None:
            return rows.get(int.from_bytes(kept.head))
        return None if row is None or row.head else row

    def _kept(self, id: int) -> ItemRow | None:
        """Where the row is of an item that was made on another server, before the agent came here."""
        return next((row for row in self._ids().scan((id, -1), 1) if row.key == id), None)

    def _ids(self) -> Collection:
        return self._agent._now_reacting().collection(KEPT_IDS)

    def first(self) -> Item | None:
        return next(iter(self.scan(limit=1)), None)

    def scan(self, after: Item | None = None, limit: int = 100) -> list[Item]:
        """A page of items, in order, behind another one."""
        return [_item(row) for row in self._rows().scan(self._place(after), _page(limit, self._name))]

    def _place(self, item: Item | None) -> tuple[int, int] | None:
        if item is None:
            return None
        row = None if item.row else self._find(item.id)
        return item.key, row.id if row else item.row or item.id

    def __iter__(self) -> Iterator[Item]:
        last: Item | None = None
        while page := self.scan(last):
            yield from page
            last = page[-1]


def _page(limit: int, name: str) -> int:
    if type(limit) is not int or limit < 0:
        raise TypeError(f"{name}: a limit is a whole number, 0 or more, not {ascii(limit)[:64]}: for all, iterate")
    return limit


def _item(row: ItemRow) -> Item:
    return Item(shown(row), row.key, unpack(row.body), row.id)


Key = int | str


class Table:
    """Annotate a field with this for rows by key: a transactional mapping on disk, in the order of its keys.

    A key is text of up to 500 characters or a 64-bit integer; integers are before texts, which are in the order of
    their code points. A value is plain; what is read is a copy, and changes only by being set. Each row that is set or
    deleted is one row of the reaction's commit; what a reaction does not touch costs neither memory nor time.
    """

    def __init__(self, agent: Agent, name: str):
        self._agent, self._name = agent, name

    @property
    def name(self) -> str:
        """What the field is called."""
        return self._name

    def _rows(self) -> Rows:
        return self._agent._now_reacting().table(self._name)

    def _key(self, key: Key) -> str:
        if type(key) is int and -_INT <= key < _INT:
            return f"i{key + _INT:016x}"
        if type(key) is str and len(key) <= KEY_CHARS and "\0" not in key and key.isprintable():
            return "s" + key
        raise TypeError(
            f"{self._name}: a key is a text of up to {KEY_CHARS} printable characters, or an integer of 64 bits, not "
            f"{ascii(key)[:64]}"
        )

    def __len__(self) -> int:
        """The first call while the agent is in memory counts them; later ones cost nothing."""
        return len(self._rows())

    def __bool__(self) -> bool:
        return bool(self.range(limit=1))

    def __contains__(self, key: Key) -> bool:
        return self._rows().get(self._key(key)) is not None

    def get(self, key: Key, default: Any = None) -> Any:
        row = self._rows().get(self._key(key))
        return default if row is None else unpack(row.body)

    def __getitem__(self, key: Key) -> Any:
        """Raises KeyError."""
        row = self._rows().get(self._key(key))
        if row is None:
            raise KeyError(key)
        return unpack(row.body)

    def set(self, key: Key, value: Any) -> None:
        """Raises TypeError for a value that is not plain, MomError for one above `max_message`."""
        row, packed = self._key(key), pack(value, f"{self._name}[{key!r}]")
        self._agent._now_reacting().check_size(f"a row of {self._name}", len(packed))
        self._rows().put(row, packed)

    __setitem__ = set

    def delete(self, key: Key) -> bool:
        """False if there is no such row."""
        return self._rows().remove(self._key(key))

    def __delitem__(self, key: Key) -> None:
        if not self.delete(key):
            raise KeyError(key)

    def range(
        self, low: Key | None = None, high: Key | None = None, *, limit: int = 100, reverse: bool = False
    ) -> list[tuple[Any, Any]]:
        """Up to `limit` pairs of key and value with low <= key < high, in order, or from the end."""
        first = "" if low is None else self._key(low)
        last = LAST if high is None else self._key(high)
        rows = self._rows().range(first, last, _page(limit, self._name), reverse)
        return [(key_of(key), unpack(row.body)) for key, row in rows]

    def __iter__(self) -> Iterator[Key]:
        """All keys, in order, as of a dict."""
        return (key_of(key) for key, _ in self._all())

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All pairs, in order, a page at a time; rows may be changed meanwhile."""
        return ((key_of(key), unpack(row.body)) for key, row in self._all())

    def _all(self) -> Iterator[tuple[str, ItemRow]]:
        first = ""
        while page := self._rows().range(first, LAST, 100):
            yield from page
            first = page[-1][0] + "\0"


def key_of(text: str) -> Key:
    """The key that a row is kept by."""
    return int(text[1:], 16) - _INT if text.startswith("i") else text[1:]
