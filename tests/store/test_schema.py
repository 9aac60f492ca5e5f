"""Stores of every schema version can be opened by this program, and none of a later one."""

import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest
from sqlite_utils import Database

from mombroker import store
from mombroker.core.errors import StoreError
from mombroker.store import schema
from mombroker.store.base import SCHEMA
from tests.store.samples import Model, reads, sample, topology
from tests.store.saved import saved


@pytest.mark.parametrize("version", range(1, SCHEMA + 1))
def test_a_store_of_each_version_is_upgraded_with_all_its_rows(version, tmp_path):
    shutil.copy(saved(version), tmp_path / "store.sqlite")
    opened = store.open(tmp_path, topology(), "paris")
    model = Model(opened.meta())
    for batch in sample():
        if version < 4:
            own = {id: row for id, row in batch.queue_in.items() if row is None or not row.payload}
            batch = replace(batch, queue_in=own, payloads={})
        model.apply(batch if version > 2 else replace(batch, held={}))
    assert reads(opened) == model.reads()
    assert opened.meta()["schema"] == SCHEMA
    opened.commit(sample()[1])
    opened.close()
    assert store.verify(tmp_path) == []


def run(file, sql):
    conn = sqlite3.connect(file)
    conn.execute(sql)
    conn.commit()
    conn.close()


@pytest.mark.parametrize("version", [1, 4, SCHEMA])
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE {0} SET name = 'vers?on_' || id",
        "DELETE FROM {0}",
        "UPDATE {0} SET migration_set = CAST(x'ff' AS TEXT)",
        "DROP TABLE {0}",
    ],
)
def test_a_damaged_list_of_migrations_is_named_and_hinders_no_start(version, damage, tmp_path):
    """The store's own schema number, which has a checksum, says what was applied."""
    file = tmp_path / "store.sqlite"
    shutil.copy(saved(version), file)
    run(file, damage.format(schema.LIST))
    assert [schema.LIST in fault for fault in store.verify(file)] == [True]
    opened = store.open(tmp_path, topology(), "paris")
    assert opened.meta()["schema"] == SCHEMA
    opened.commit(sample()[1])
    opened.close()
    if version < SCHEMA:
        assert store.verify(tmp_path) == []


def test_the_schema_number_counts_the_migrations():
    db = Database(memory=True)
    schema.migrations.apply(db)
    assert len(schema.migrations.applied(db)) == SCHEMA


def test_a_newer_store_is_refused_and_not_touched(tmp_path):
    store.open(tmp_path, topology(), "paris").close()
    file = tmp_path / "store.sqlite"
    conn = sqlite3.connect(file)
    conn.execute("UPDATE meta SET value = ?, sum = NULL WHERE key = 'schema'", [SCHEMA + 1])
    conn.commit()
    conn.close()
    before = file.read_bytes()
    sentence = (
        f"{file} was written by a newer mombroker (schema {SCHEMA + 1}, this one knows {SCHEMA}); install that version"
    )
    for attempt in (lambda: store.open(tmp_path, topology(), "paris"), lambda: store.read(tmp_path)):
        with pytest.raises(StoreError) as refused:
            attempt()
        assert str(refused.value) == sentence
    assert store.verify(tmp_path) == [sentence]
    assert file.read_bytes() == before


def test_a_store_whose_making_was_cut_off_is_made_at_the_next_start(tmp_path, monkeypatch):
    def cut(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("secrets.token_hex", cut)
        store.open(tmp_path, topology(), "paris")
    made = store.open(tmp_path, topology(), "paris")
    assert made.meta()["server"] == "paris"
    made.close()


def test_a_store_is_there_without_numpy_and_pandas_which_come_when_they_are_asked_for():
    code = "import sys, mombroker.store.sqlite; print({'numpy', 'pandas'} & {*sys.modules}); import numpy, pandas"
    pytest.importorskip("pandas", reason="which the extra spark has")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "set()\n"
