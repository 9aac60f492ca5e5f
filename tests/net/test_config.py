"""The topology file: what it means, what is wrong with it and where, and back to text."""

import string
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mombroker import ordering
from mombroker.core.errors import TopologyError
from mombroker.core.layouts import LAYOUTS, generate
from mombroker.core.limits import Limits
from mombroker.core.topology import AgentDecl, Domain, Server, Topology
from mombroker.net.config import dumps, load, loads
from mombroker.net.toml import key_lines
from mombroker.ordering import Ordering

HERE = Path("/srv/bus")
SAMPLE = """
[bus]
name = "demo"
registry = "paris"
secret_file = "bus.secret"
allow = ["examples"]

[servers.paris]
listen = "10.0.0.1:16300"
stomp = "0.0.0.0:61613"
data = "var/paris"
[servers.lyon]
listen = "[fe80::1]:16300"
stomp = "127.0.0.1:61613"
stomp_tls = "[::1]:61614"
http = "127.0.0.1:8161"
http_origins = ["https://shop.example"]
certificate = "lyon.pem"
private_key = "/etc/lyon.key"
anonymous = true
type_headers = true
hide_version = true
[servers.nice]
listen = "nice.example:16300"
data = "/var/lib/nice"

[domains.core]
servers = ["paris", "lyon", "nice"]
ordering = "matrix"

[[agents]]
name = "greeter"
server = "lyon"
class = "examples.greeter:Greeter"
fields = { greeting = "hello", times = [1, 2.5, true] }

[[policies]]
match = "queue:orders.*"
max_messages = 1_000
overflow = "reject"
redelivery_delay = 0.5
[[policies]]
match = "*"
create = false

[limits]
max_message = 1_000

[log]
enabled = false
max_age_days = 7
"""


def sample(old="", new=""):
    assert old in SAMPLE
    return SAMPLE.replace(old, new, 1)


def faults(text):
    with pytest.raises(TopologyError) as refused:
        loads(text, HERE, "bus.toml")
    return refused.value.errors


def line_of(text, part):
    return next(at for at, line in enumerate(text.splitlines(), 1) if part in line)


def test_the_sample_means_what_it_says():
    assert loads(SAMPLE, HERE) == Topology(
        name="demo",
        registry="paris",
        secret_file="/srv/bus/bus.secret",
        allow=("examples",),
        servers={
            "paris": Server("paris", "10.0.0.1", 16300, "0.0.0.0:61613", "/srv/bus/var/paris"),
            "lyon": Server(
                "lyon",
                "fe80::1",
                16300,
                "127.0.0.1:61613",
                "/srv/bus/var/lyon",
                "[::1]:61614",
                "/srv/bus/lyon.pem",
                "/etc/lyon.key",
                True,
                True,
                True,
                "127.0.0.1:8161",
                None,
                ("https://shop.example",),
            ),
            "nice": Server("nice", "nice.example", 16300, None, "/var/lib/nice"),
        },
        domains={"core": Domain("core", ("paris", "lyon", "nice"), "matrix", {})},
        agents=[
            AgentDecl("greeter", "lyon", "examples.greeter:Greeter", {"greeting": "hello", "times": [1, 2.5, True]})
        ],
        limits={"max_message": 1000},
        log={"enabled": False, "max_age_days": 7},
        policies=[
            {"match": "queue:orders.*", "max_messages": 1000, "overflow": "reject", "redelivery_delay": 0.5},
            {"match": "*", "create": False},
        ],
    )


def test_a_file_is_read_and_its_paths_are_relative_to_its_folder(tmp_path, monkeypatch):
    (tmp_path / "bus.toml").write_text(SAMPLE)
    monkeypatch.chdir(tmp_path)
    bus = load("bus.toml")
    assert bus.servers["paris"].data == str(tmp_path / "var/paris")
    assert bus.secret_file == str(tmp_path / "bus.secret")


def test_one_server_needs_hardly_anything():
    bus = loads('[bus]\nname = "solo"\n[servers.a]\nlisten = "localhost:1"\n', HERE)
    assert (bus.registry, bus.domains, bus.servers["a"].data) == ("a", {}, "/srv/bus/var/a")


WRONG = [
    ("registry =", "registri =", "bus.registri: unknown key: did you mean registry?"),
    ("stomp =", "web =", "servers.paris.web: unknown key: known are listen, stomp, stomp_tls,"),
    ("anonymous = true", "anonymous = 1", "servers.lyon.anonymous: must be true or false, not 1: anonymous = true"),
    (
        'stomp_tls = "[::1]:61614"',
        "",
        "servers.lyon.certificate: it is for TLS: add stomp_tls, amqp_tls, http_tls or [bus] ca, or remove it",
    ),
    ('"10.0.0.1:16300"', "16300", 'servers.paris.listen: must be text of one line, not 16300: listen = "127.'),
    ('"10.0.0.1:16300"', '"10.0.0.1"', "servers.paris.listen: '10.0.0.1' is no address: write HOST:PORT"),
    ('"nice.example:16300"', '"0.0.0.0:16300"', "servers.nice.listen: peers dial this address"),
    ('secret_file = "bus.secret"', "", "bus.secret_file: missing: other hosts can reach paris, lyon and nice"),
    ('"lyon", "nice"]', '"lyons", "nice"]', "domains.core.servers: there is no server 'lyons': did you mean lyon?"),
    ('"lyon", "nice"]', '"lyon", 3]', 'domains.core.servers: must be a list of texts, not ["paris", "lyon", 3]'),
    ('ordering = "matrix"', 'ordering = "fifo"', "domains.core.ordering: fifo "),
    ('ordering = "matrix"', "ordering = 5", 'domains.core.ordering: write a name, as "matrix", or { backend ='),
    ('ordering = "matrix"', "ordering = { groups = [] }", "domains.core.ordering: write a name"),
    ('ordering = "matrix"', 'ordering = "metrics"', "domains.core.ordering: no ordering back end is named 'metrics'"),
    ('"matrix"', '{ backend = "matrix", gruops = [] }', "domains.core.ordering: unknown option 'gruops'"),
    ('server = "lyon"', 'server = "lion"', "agents[0].server: there is no server 'lion': did you mean lyon?"),
    ('class = "examples.greeter:Greeter"', "", 'agents[0].class: missing: add class = "examples.greeter:Greeter"'),
    ("2.5", "2024-01-01", "agents[0].fields: 2024-01-01 cannot be a field"),
    ("max_message =", "max_mesage =", "limits.max_mesage: unknown key: did you mean max_message?"),
    ("max_message = 1_000", "max_message = 0", "limits.max_message: must be a whole number from 1 up, not 0"),
    ("max_message = 1_000", "min_free = -1", "limits.min_free: must be a whole number from 0 up, not -1"),
    ("max_message = 1_000", "max_message = true", "limits.max_message: must be a whole number from 1 up, not true"),
    ('name = "demo"', 'name = "de\\u0000mo"', 'bus.name: must be text of one line, not "de\\u0000mo"'),
    ('"lyon", "nice"]', '"lyon\\nx"]', "domains.core.servers: there is no server 'lyon\\nx'"),
    ("[domains.core]", '[domains."c\\nx"]', "domains.c\\nx: 'c\\nx' is no name of a domain"),
    ("max_message = 1_000", "max_message = 33_554_433", "limits.max_message: must be 33554432 at most, not 33554433"),
    ("max_message = 1_000", f"max_store = {1 << 63}", "limits.max_store: must be 9223372036854775807 at most, not 92"),
    ("max_message = 1_000", "retry_factor = 1_001", "limits.retry_factor: must be 1000 at most, not 1001: lower it"),
    ("enabled = false", "enabled = 0", "log.enabled: must be true or false, not 0: enabled = true"),
    ("enabled = false", f"max_bytes = {16 << 30}", f"log.max_bytes: must be below max_store = {16 << 30}, or the log"),
    ("[log]", "[logs]", "logs: unknown key: did you mean log?"),
    ("[domains.core]", "[domains.core.x]", "domains.core.x: unknown key"),
    ("[[agents]]", "[agents]", "agents: must be a list"),
    ("max_messages = 1_000", 'max_messages = "1k"', "policies[0]: max_messages must be a whole number, not '1k'"),
    (
        'overflow = "reject"',
        'overflow = "drop"',
        "policies[0]: overflow must be 'block' or 'reject' or 'drop-head', not 'drop'",
    ),
    (
        'overflow = "reject"',
        'overflow = "drop-oldest"',
        "policies[0]: overflow is not 'drop-oldest' any more: write 'dr",
    ),
    ('overflow = "reject"', 'full = "reject"', "policies[0]: a policy has no 'full' any more: write 'overflow'"),
    ("redelivery_delay = 0.5", "redelivery_dealy = 0.5", "policies[0]: a policy has no 'redelivery_dealy'; it has"),
    (
        'match = "queue:orders.*"',
        'match = "orders.*"',
        "policies[0]: 'orders.*' matches no destination: write 'queue:ord",
    ),
    (
        'match = "queue:orders.*"',
        'match = "qeue:a"',
        "policies[0]: 'qeue:a' matches no destination: did you mean queue:a?",
    ),
    ('overflow = "reject"', 'order = "total"', "policies[0]: order is for topics, and 'queue:orders.*' matches none"),
    ("create = false", "create = 0", "policies[1]: create must be true or false, not 0"),
]


@pytest.mark.parametrize(("old", "new", "expected"), WRONG, ids=[expected.split(": ")[0] for *_, expected in WRONG])
def test_each_mistake_is_told_with_its_line_key_and_remedy(old, new, expected):
    text = sample(old, new)
    told = faults(text)
    (error,) = [error for error in told if expected in error]
    where, _, rest = error.partition(" ")
    assert rest.startswith(expected)
    if new and not rest.startswith("policies["):  # of a policy the line of its header is told
        assert where == f"bus.toml:{line_of(text, new)}:"


REVISIONS = [
    ("0", "must be a whole number from 1 up, not 0: revision = 3"),
    ("-3", "must be a whole number from 1 up, not -3: revision = 3"),
    ("true", "must be a whole number from 1 up, not true: revision = 3"),
    ("3.0", "must be a whole number from 1 up, not 3.0: revision = 3"),
    ('"3"', 'must be a whole number from 1 up, not "3": revision = 3'),
    ("[3]", "must be a whole number from 1 up, not [3]: revision = 3"),
    ("{ x = 3 }", 'must be a whole number from 1 up, not {"x": 3}: revision = 3'),
    (f"{1 << 63}", "must be 9223372036854775807 at most, not 9223372036854775808: lower it"),
    (f"{1 << 65}", "not TOML, whose numbers have 64 bits: lower it"),
]


@pytest.mark.parametrize(("value", "expected"), REVISIONS, ids=[value for value, _ in REVISIONS])
def test_a_revision_is_a_number_of_one(value, expected):
    assert faults(f"# ours\nrevision = {value}{SAMPLE}") == [f"bus.toml:2: revision: {expected}"]


def test_a_file_says_above_all_tables_from_which_revision_it_was_made():
    assert loads(f"revision = {(1 << 63) - 1}{SAMPLE}", HERE).revision == (1 << 63) - 1
    assert loads(SAMPLE, HERE).revision == 0
    (error,) = faults(f"{SAMPLE}revision = 3\n")
    assert error.endswith(": log.revision: unknown key: it belongs above the first table")
    assert faults(f"revison = 3{SAMPLE}") == ["bus.toml:1: revison: unknown key: did you mean revision?"]


def test_all_faults_are_told_at_once_in_order_of_their_lines():
    text = """\
[bus]
name = "demo"
registry = "paris"
[servers.paris]
listen = "127.0.0.1:1"
[servers.lyon]
listen = "127.0.0.1:1"
[servers.nice]
lisen = "127.0.0.1:3"
[domains.one]
servers = [
    "paris",  # ]
    "lyon", "nice",
]
[domains.two]
servers = ["nice", "lyon"]
[[agents]]
name = "a"
server = "lyon"
class = "m:A"
[[agents]]
name = "a"
server = "rome"
class = "m:A"
"""
    assert [error.split(": ")[:2] for error in faults(text)] == [
        ["bus.toml:7", "servers.lyon.listen"],
        ["bus.toml:8", "servers.nice.listen"],
        ["bus.toml:9", "servers.nice.lisen"],
        ["bus.toml:16", "domains.two.servers"],
        ["bus.toml:22", "agents[1].name"],
        ["bus.toml:23", "agents[1].server"],
    ]


def test_a_cycle_is_told_with_the_line_of_the_domain_to_change():
    text = '[bus]\nname = "b"\nregistry = "s1"\n'
    text += "".join(f'[servers.s{at}]\nlisten = "127.0.0.1:{at}"\n' for at in (1, 3, 5))
    text += '[domains.d1]\nservers = ["s1", "s3"]\n[domains.d2]\nservers = ["s3", "s5"]\n'
    text += '[domains.d3]\nservers = ["s5", "s1"]\n'
    assert faults(text) == [
        "bus.toml:15: domains.d3.servers: d1 – s3 – d2 – s5 – d3 – s1 – d1 is a cycle, in which causal order breaks: "
        "take s5 out of d3, which costs the fewest hops, and delete d3, since one server is left in it"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[bus]\nname = "a\n', "bus.toml:2: not TOML: "),
        ("[bus]\n[bus]\n", "bus.toml:2: not TOML: cannot declare ('bus',) twice"),
        ("[servers]\nparis = 3\n", "bus.toml:2: servers.paris: must be a table, not 3"),
        (f"x = {'9' * 5000}", "bus.toml: not TOML: a number has thousands of digits; shorten it"),
        (f"[limits]\nmax_message = 0x{'f' * 5000}", "bus.toml:2: limits.max_message: not TOML, whose numbers have 64"),
        (f"[[agents]]\nname = 0x{'f' * 5000}", "bus.toml:2: agents[0].name: not TOML, whose numbers have 64 bits"),
        (f"[[policies]]\noverflow = [{1 << 65}]", "bus.toml:2: policies[0].overflow[0]: not TOML"),
        (f"x = {'[' * 5000}{']' * 5000}", "bus.toml: lists and tables are too deep"),
        ("", "bus.toml: bus.name: missing: add name ="),
    ],
)
def test_what_is_no_topology_at_all(text, expected):
    assert any(error.startswith(expected) for error in faults(text))


def test_a_mark_at_the_beginning_of_a_file_is_no_part_of_it(tmp_path):
    """Some editors write one."""
    (tmp_path / "bus.toml").write_bytes(b'\xef\xbb\xbf[bus]\nname = "marked"\n[servers.a]\nlisten = "127.0.0.1:1"\n')
    assert load(tmp_path / "bus.toml").name == "marked"


def test_unreadable_files_are_refused_in_a_sentence(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b'[bus]\nname = "\xe9"\n')
    missing = r"none.toml: no such file or directory: name the topology file by --file or \$MOM_FILE$"
    for name, reason in (("none", missing), ("latin", "is not UTF-8")):
        with pytest.raises(TopologyError, match=reason):
            load(tmp_path / f"{name}.toml")


class Grouped(Ordering):
    """A back end that has an option."""

    options = ("groups",)

    @classmethod
    def validate(cls, members, options):
        return ["b is in no group"] if "b" not in str(options) else super().validate(members, options)


def test_a_domain_keeps_the_options_that_its_back_end_finds_right(monkeypatch):
    monkeypatch.setattr(ordering, "backend", {"grouped": Grouped}.__getitem__)
    text = sample('"matrix"', '{ backend = "grouped", groups = [["a", "b"], ["c", "d"]] }')
    core = loads(text, HERE).domains["core"]
    assert (core.backend, core.options) == ("grouped", {"groups": [["a", "b"], ["c", "d"]]})
    assert loads(dumps(loads(text, HERE)), HERE).domains["core"] == core
    assert faults(text.replace('"b"', '"x"')) == ["bus.toml:29: domains.core.ordering: b is in no group"]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@given(
    fields=st.dictionaries(texts, values, max_size=4),
    names=st.lists(
        st.text(string.ascii_letters + "0.-_", min_size=1, max_size=6).map("n".__add__), unique=True, min_size=3
    ),
    stomp=st.none() | st.just("0.0.0.0:61613"),
    log=st.fixed_dictionaries({}, optional={"enabled": st.booleans(), "max_bytes": st.integers(1, (16 << 30) - 1)}),
)
def test_a_topology_written_as_text_is_read_back_the_same(fields, names, stomp, log):
    bus = Topology(
        name="bus",
        servers={
            name: Server(
                name,
                f"host-{at}",
                1,
                stomp,
                f"/srv/{name}",
                *(("[::1]:5", "/c.pem", "/srv/bus/k.pem") if at else ()),
                anonymous=not stomp,
                type_headers=bool(at),
                hide_version=not at,
            )
            for at, name in enumerate(names)
        },
        domains={names[0]: Domain(names[0], tuple(names))},
        agents=[AgentDecl("a", names[1], "m:C", fields), AgentDecl("b", names[2], "m:C")],
        registry=names[0],
        secret_file="/etc/secret",
        allow=("x.y",),
        log=log,
    )
    text = dumps(bus, remarks=["made by rule", "[not.a.table]"])
    assert loads(text, HERE) == bus
    lines, written = key_lines(text), text.split("\n")
    for name in names:
        assert written[lines["servers", name, "listen"] - 1].startswith("listen =")
    assert written[lines["agents", 1, "server"] - 1] == f'server = "{names[2]}"'


def test_paths_are_written_relative_to_a_folder():
    bus = loads(SAMPLE, HERE)
    text = dumps(bus, HERE)
    assert 'secret_file = "bus.secret"' in text and 'data = "var/paris"' in text
    assert loads(text, HERE) == bus


@pytest.mark.parametrize("layout", LAYOUTS)
def test_generated_layouts_are_read_back(layout):
    assert loads(dumps(generate(layout, 12)), HERE).domains == generate(layout, 12).domains


def test_a_thousand_servers_are_read():
    assert len(loads(dumps(generate("bus", 1000)), HERE).servers) == 1000


def test_a_default_of_a_limit_may_be_written() -> None:
    for each in fields(Limits):
        read = loads(SAMPLE.replace("max_message = 1_000", f"{each.name} = {each.default}"), HERE)
        assert read.limits == {each.name: each.default}


def test_permissions_of_a_file():
    said = '[[permissions]]\nrole = "clerk"\nmatch = "queue:*"\nmay = ["send"]\ndeny = ["browse"]\n'
    whole = sample() + "\n" + said
    made = loads(whole, HERE, "bus.toml")
    assert made.permissions == [{"role": "clerk", "match": "queue:*", "may": ["send"], "deny": ["browse"]}]
    assert loads(dumps(made), HERE, "bus.toml").permissions == made.permissions
    for wrong in ('may = "send"', 'may = ["sned"]', "may = [1]"):
        (fault,) = faults(whole.replace('may = ["send"]', wrong))
        assert "permissions[0]: " in fault
