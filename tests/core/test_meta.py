"""Every key of table `meta` stands once, in core/meta.py: no file writes one out, and no store has another one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from mombroker.core import meta
from mombroker.core.identity import identity
from mombroker.core.meta import KEYS, key_of
from tests.broker.bench import Broker
from tests.core.bus import topology
from tests.test_tree import ROOT, files

WHOLE = {key.name for key in KEYS if key.name[-1] != ":"}
PREFIXES = tuple(key.name for key in KEYS if key.name[-1] == ":" and key.name != meta.TOPIC)  # names of topics begin so
SHIPPED = [path for path in files(".py") if path.relative_to(ROOT).parts[0] in ("mombroker", "admin", "agents")]


def of_meta(node: ast.AST) -> bool:
    """Is this expression the table?"""
    text = ast.unparse(node).removesuffix("()")
    return text.endswith(("meta", "metas[name]")) and not text.startswith("ctx")


def written_out(path: Path) -> Iterator[str]:
    """Keys that a file has as literals."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Subscript(value=table, slice=ast.Constant(value=str(key))) if of_meta(table):
                yield key
            case ast.Call(func=ast.Attribute(value=table, attr="get" | "pop"), args=[ast.Constant(value=key), *_]):
                if of_meta(table):
                    yield key
            case ast.Compare(left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()], comparators=[table]):
                if of_meta(table):
                    yield key
            case ast.keyword(arg="meta", value=ast.Dict(keys=keys)):
                yield from (key.value for key in keys if isinstance(key, ast.Constant) and key.value in WHOLE)
            case ast.Constant(value=str(text)) if text.startswith(PREFIXES) and " " not in text:
                yield text


def test_no_file_writes_a_key_out():
    found = {str(path): keys for path in SHIPPED if path.name != "meta.py" and (keys := [*written_out(path)])}
    assert found == {}


def test_a_literal_is_seen(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text(
        'a = meta["next"], store.meta().get("now", 0), "clean" in self.meta, Batch(meta={"unclean": 0}), f"own:{x}"\n'
        'b = {"now": 1}, row["now"], meta[NOW], f"topic:{x}", "policy: what it is"\n'
    )
    assert sorted(written_out(path)) == ["clean", "next", "now", "own:", "unclean"]


def test_the_list_says_which_file_each_is_of():
    for key in KEYS:
        room = ROOT if key.owner.startswith("admin") else ROOT / "mombroker"
        name = next(name for name, value in vars(meta).items() if value == key.name)
        assert name in (room / key.owner).read_text(), key
    replicated = {
        meta.NAME, meta.OTHER, meta.HOME, meta.POLICY, meta.TOPIC, meta.USER, meta.PERMISSION, meta.LOST_SERVER,
    }  # fmt: skip
    assert {key.name for key in KEYS if key.replicated} == replicated


def test_a_store_that_was_used_has_keys_of_the_list_only():
    b = Broker(topology({"x": "abc", "y": "cd"}, orderings={"y": ("daisy", {})}))
    b.connect("d", client_id="ann").subscribe("s", "topic:t", durable="n")
    b.connect("a").subscribe("s", "queue:q")
    b.connect("b").send("topic:t", "x")
    b.ask("a", "set_policy", match="queue:q", values={"max_messages": 5})
    b.ask("a", "set_user", user="ann", hash="h", new=True)
    b.ask("a", "set_permission", user="*", match="*", may=["send", "receive", "create"])
    b.ask("a", "exported", seq=1)
    b.crash("b")
    b.reboot("d")
    b.boot("b")
    b.pump()
    found = {key_of(key).name for store in b.stores.values() for key in store.meta()}
    assert found >= {"server", "schema", "incarnation", "graph", "digest:", "order", "now", "next", "clean", "unclean"}
    assert found >= {"name:", "policy:", "topic:", "user:", "permission:", "exported"}
    replicated = [
        {key: value.partition("\n")[0] for key, value in store.meta().items() if key_of(key).replicated}
        for store in b.stores.values()
    ]
    assert all(each == replicated[0] for each in replicated) and len(replicated[0]) > 3
    assert {key_of(key).name for key in identity(b.topology, "a")} == {"server", "graph", "digest:", "order"}


def test_an_unknown_key_is_an_error():
    with pytest.raises(KeyError):
        key_of("colour:red")
