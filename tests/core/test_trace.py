"""One list of a log record's fields: what is added at its end is written, stored, read and analysed."""

import subprocess
import sys
from pathlib import Path

import pytest

from mombroker.core import trace
from mombroker.core.trace import DEFAULTS, FIELDS, Record
from tests.core.bus import Bus, topology

ADDED = '    region: Annotated[str, "where the server stands"] = ""\n'

# Run where the core's list has one field more, before anything else is imported.
SCRIPT = """
import sys, types
from pathlib import Path
path, folder = Path(sys.argv[1]), Path(sys.argv[2])
name = "mombroker.core.trace"
made = types.ModuleType(name)
sys.modules[name] = made
text = path.read_text()
last = '    detail: Annotated[str, "send: the type; meter: of what; client: who; else the reason"] = ""\\n'
assert text.count(last) == 1
exec(compile(text.replace(last, last + ADDED), str(path), "exec"), made.__dict__)
from mombroker.core.batch import Batch
from mombroker.core.limits import Limits
from mombroker.core.transaction import Transaction
from mombroker.store import columns, read
from mombroker.store.memory import MemoryStore
from mombroker.store.sqlite import SqliteStore
from tests.core.bus import topology

bus, memory = topology({"d": "ab"}), MemoryStore(topology({"d": "ab"}), "a", "i")
tx = Transaction("a", bus, Limits(), memory, 5)
tx.record("send", origin="a", number=1, sent=5, region="north")
tx.record("react", origin="a", number=1, done=6)
old = columns.pack([tuple(record)[:-1] for record in tx.rows.log])  # by a version that does not know the field
assert [record.region for record in columns.unpack(old, 2)] == ["", ""]
disk = SqliteStore(folder, bus, "a")
for store in (memory, disk):
    store.commit(Batch(number=1, log=list(tx.rows.log)))
    assert [record.region for _, record in store.log(0, 9)] == ["north", ""], store
disk.close()
from mombroker.admin.cli import log
assert "region" in log.COLUMNS
try:
    import pyarrow
except ImportError:
    sys.exit(0)
from mombroker.admin.analysis import rows, schema
assert schema.NAMES[-1] == "region" and schema.COLUMNS[-1].text == "where the server stands"
(batch,) = rows.batches(read(folder), 0, 2)
assert batch.column("region").to_pylist() == ["north", ""] and batch.column("kind").to_pylist() == ["send", "react"]
"""


@pytest.mark.interpreted
def test_a_field_that_is_added_at_the_end_goes_all_the_way(tmp_path):
    script = SCRIPT.replace("ADDED", repr(ADDED))
    run = subprocess.run(
        [sys.executable, "-c", script, trace.__file__, str(tmp_path / "a")],
        capture_output=True, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert run.returncode == 0, run.stderr


def test_every_field_has_a_default_of_its_kind_which_a_store_need_not_keep():
    assert all(not default for default in DEFAULTS) and Record() == DEFAULTS


def test_a_record_is_made_by_names_and_a_name_that_is_not_a_field_is_an_error():
    class Tx:
        topology = topology({"d": "ab"})

        class rows:
            log: list[Record] = []

    record = trace.recorder(Tx)
    record("send", detail="x", sent=3)
    record(*range(len(FIELDS)))
    assert Tx.rows.log == [Record("send", sent=3, detail="x"), tuple(range(len(FIELDS)))]
    trace.recorder(Tx, "detail", "kind")("x", "hold")
    assert Tx.rows.log.pop() == Record("hold", detail="x")
    assert all(type(each) is Record for each in Tx.rows.log)
    with pytest.raises(TypeError, match="regoin"):
        record("send", regoin="north")


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize("said, taken", [
    (f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01"), (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
    (f"cc-{TRACE}-{SPAN}-01-more", f"cc-{TRACE}-{SPAN}-01"), (f"cc-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01"),
    (f"00-{TRACE}-{SPAN}-01-more", ""), (f"cc-{TRACE}-{SPAN}-01more", ""), (f"ff-{TRACE}-{SPAN}-01", ""),
    (f"00-{'0' * 32}-{SPAN}-01", ""), (f"00-{TRACE}-{'0' * 16}-01", ""), (f"00-{TRACE.upper()}-{SPAN}-01", ""),
    (f"00-{TRACE}-{SPAN}-1", ""), (f"00-{TRACE}-{SPAN}", ""), (f"00-{TRACE}{SPAN}-01", ""), ("", ""), (None, ""),
    (f" 00-{TRACE}-{SPAN}-01", ""), (f"00-{TRACE}-{SPAN}-01\n", ""), (7, ""), (f"00-{TRACE[:-1]}g-{SPAN}-01", ""),
])  # fmt: skip
def test_a_traceparent_is_what_w3c_says_and_all_else_is_none(said, taken):
    assert trace.traceparent(said) == taken


@pytest.mark.parametrize("enabled", [True, False])
def test_the_log_can_be_off(enabled):
    bus = Bus(topology({"d": "ab"}, {"a/a": "tests.core.sample_agents:Sink"}, log={"enabled": enabled}))
    bus.pump()
    assert bool(bus.stores["a"].log(0, 1)) == enabled
