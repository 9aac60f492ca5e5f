"""Writes tests/data/store-vN.sqlite, the sample of this schema version: python -m tests.store.saved

Run once for each new schema version, and commit the file; one that is there is never written again, since stores of
that version are out in the world as they were.
"""

import tempfile
from pathlib import Path

from mombroker import store
from mombroker.store.base import SCHEMA
from tests.store.samples import sample, topology

DATA = Path(__file__).resolve().parent.parent / "data"


def saved(version: int) -> Path:
    return DATA / f"store-v{version}.sqlite"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = store.open(folder, topology(), "paris")
        for batch in sample():
            made.commit(batch)
        made.close()
        store.backup(folder, saved(SCHEMA))


if __name__ == "__main__":
    main()
