"""`mom topology`, through the root command."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from mombroker.admin.cli.main import cli
from mombroker.admin.topology import render
from mombroker.core.layouts import build, generate
from mombroker.net import config

SITES = {"core": ["paris", "lyon", "nice"], "north": ["lyon", "lille"], "south": ["nice", "nimes", "nantes"]}
BOTH = pytest.mark.parametrize("form", ["table", "json"])


@pytest.fixture
def sites(tmp_path):
    path = tmp_path / "sites.toml"
    path.write_text(config.dumps(build(SITES, name="sites")))
    return str(path)


@pytest.fixture
def ring(tmp_path):
    path = tmp_path / "ring.toml"
    domains = {"d1": ["s1", "s3"], "d2": ["s3", "s5"], "d3": ["s5", "s1"]}
    path.write_text(config.dumps(build(domains, checked=False)))
    return str(path)


def mom(*args, code=0):
    result = CliRunner().invoke(cli, ["topology", *args])
    assert result.exit_code == code, result.output
    return result


def test_a_valid_file_is_summed_up(sites):
    assert json.loads(mom("validate", sites, "-o", "json").stdout) == {
        "file": sites, "valid": True, "servers": 6, "domains": 3, "routers": 2, "agents": 0,
    }  # fmt: skip
    assert re.search(r"^valid +yes$", mom("validate", sites).stdout, re.MULTILINE)


def test_a_wrong_file_is_refused_with_exit_code_1_and_one_line_a_fault(ring):
    text = mom("validate", ring, code=4)
    assert text.stdout == ""
    (line,) = text.stderr.splitlines()
    at = 1 + Path(ring).read_text().splitlines().index('servers = ["s5", "s1"]')
    assert f"{ring}:{at}: domains.d3.servers: d1 – s3 – d2 – s5 – d3 – s1 – d1 is a cycle" in line
    found = json.loads(mom("validate", ring, "-o", "json", code=4).stdout)
    assert found["valid"] is False
    assert line.endswith(found["errors"][0])


def test_an_agent_that_cannot_be_made_is_told(tmp_path):
    path = tmp_path / "bus.toml"
    servers = '[bus]\nname = "one"\nregistry = "a"\n[servers.a]\nlisten = "127.0.0.1:18399"\n'
    path.write_text(servers + '[[agents]]\nname = "x"\nserver = "a"\nclass = "unheard_of:X"\n')
    (line,) = mom("validate", str(path), code=4).stderr.splitlines()
    assert "agent x of a cannot be made: unheard_of:X cannot be imported" in line


def test_of_a_file_with_thousands_of_faults_the_first_are_told(tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text("[servers]\n" + "\n".join(f's{at} = {{ listen = "nowhere" }}' for at in range(3000)))
    lines = mom("validate", str(path), code=4).stderr.splitlines()
    assert len(lines) == 51
    assert (
        lines[-1]
        == f"and {len(json.loads(mom('validate', str(path), '-o', 'json', code=4).stdout)['errors']) - 50} faults more"
    )


def test_a_layout_of_the_former_name_is_refused_with_those_that_there_are():
    result = mom("generate", "daisy", "9", code=2)
    assert "'daisy' is not one of 'bus', 'chain', 'tree', 'flat'" in result.stderr


@pytest.mark.parametrize("verb", [["show"], ["render"], ["route", "s1", "s3", "-f"]])
def test_no_other_command_takes_a_wrong_file(ring, verb):
    assert "is a cycle" in mom(*verb, ring, code=1).stderr


def test_show_tells_the_same_in_a_table_as_in_json(sites):
    whole = json.loads(mom("show", sites, "-o", "json").stdout)
    assert [domain["domain"] for domain in whole["domains"]] == ["core", "north", "south"]
    assert whole["domains"][0]["routers"] == ["lyon", "nice"]
    assert whole["servers"][1]["domains"] == ["core", "north"]
    table = mom("show", sites).stdout
    assert re.search(r"^registry +paris$", table, re.MULTILINE)
    for row in whole["servers"]:
        assert re.search(
            rf"^{row['server']} +{row['listen']} +{row['data']} +{', '.join(row['domains'])}$", table, re.M
        )
    for row in whole["domains"]:
        assert re.search(rf"^{row['domain']} +{row['ordering']} +{', '.join(row['servers'])} +", table, re.M)
    assert json.loads(mom("show", sites, "-c", "bus,registry", "-o", "json").stdout) == {
        "bus": "sites",
        "registry": "paris",
    }


def test_show_warns_of_domains_in_which_a_member_that_is_down_costs_the_others_disk(monkeypatch, sites):
    bus = config.load(sites)
    bus.domains["core"].backend = "vector"
    monkeypatch.setattr(config, "load", lambda file: bus)
    notes = json.loads(mom("show", sites, "-o", "json").stdout)["notes"]
    assert [note["domain"] for note in notes] == ["core"]
    assert "vector: a member that stays down costs the others disk for all traffic" in mom("show", sites).stdout


def test_show_tells_what_each_domain_costs_and_stands():
    costs = {row["domain"]: row for row in json.loads(mom("show", "etc/mixed.toml", "-o", "json").stdout)["costs"]}
    assert list(costs) == ["centre", "uplink", "lab", "floor", "plants", "board"]
    assert {name: row["packets"] for name, row in costs.items()} == {
        "centre": 1, "uplink": 1, "lab": 1, "floor": 5, "plants": 1, "board": 2,
    }  # fmt: skip
    assert costs["plants"]["relays"] == ["plant1", "plant2"] and costs["plants"]["diameter"] == 3
    assert (costs["floor"]["links"], costs["floor"]["diameter"]) == ([2, 2], 2)
    assert (costs["centre"]["control_bytes"], costs["centre"]["control_bytes_worst"]) == (12, 36)
    table = mom("show", "etc/mixed.toml").stdout
    assert re.search(r"^floor +2, 2 +2 +edge, floor1, floor2, floor3 +5 +5 +8 +8 +all among the others", table, re.M)
    assert "groups=[hub, plant1], [plant2, plant3], connectors=plant1" in table


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ('{ backend = "ks", encoding = "tree" }', 'encoding is one of two: write "list" or "bitmap"'),
        ('{ backend = "rst", encoding = "list" }', "unknown option 'encoding': this back end has none"),
        ('{ backend = "overlay", links = [["paris", "lyon"]] }', "no links lead from paris to nice"),
        ('{ backend = "overlay", links = [["paris", "rome"]] }', "'rome' in links is no server of this domain"),
        ('{ backend = "daisy", groups = [["paris"], ["lyon"]] }', "nice in no group"),
        ('{ backend = "daisy", groups = [["paris", "rome"], ["lyon", "nice"]] }', "'rome' in groups is no server"),
        ('{ backend = "daisy", groups = [["paris", "lyon"], ["lyon", "nice"]] }', "'lyon' is in two groups"),
        ('{ backend = "daisy", relay = "lazy" }', 'write "eager" or "stable"'),
        ('"fifo"', "fifo keeps causal order between two servers, not among 3: choose matrix"),
        ('"vektor"', "no ordering back end is named 'vektor': choose one of"),
    ],
)
def test_wrong_options_of_a_back_end_are_refused_with_the_line_and_the_remedy(sites, order, reason):
    path = Path(sites)
    path.write_text(path.read_text().replace('ordering = "matrix"', f"ordering = {order}", 1))
    at = 1 + path.read_text().splitlines().index(f"ordering = {order}")
    error = mom("validate", sites, code=4).stderr
    assert f"{sites}:{at}: domains.core.ordering: " in error and reason in error


def test_the_route_is_listed_hop_by_hop(sites):
    assert json.loads(mom("route", "lille", "nimes", "--file", sites, "-o", "json").stdout) == [
        {"hop": 1, "from": "lille", "domain": "north", "ordering": "fifo", "to": "lyon"},
        {"hop": 2, "from": "lyon", "domain": "core", "ordering": "matrix", "to": "nice"},
        {"hop": 3, "from": "nice", "domain": "south", "ordering": "matrix", "to": "nimes"},
    ]
    lines = mom("route", "lille", "nimes", "--file", sites, "-c", "domain,to").stdout.split("\n")
    assert [line.split() for line in lines] == [
        ["domain", "to"],
        ["north", "lyon"],
        ["core", "nice"],
        ["south", "nimes"],
        [],
    ]


@BOTH
def test_the_route_to_oneself_has_no_hop(sites, form):
    found = mom("route", "lyon", "lyon", "-f", sites, "-o", form)
    assert found.stdout == ("[]\n" if form == "json" else "")
    assert "take no hop" in found.stderr


@pytest.mark.parametrize(("name", "hint"), [("lion", "did you mean lyon?"), ("x", "its servers are paris, lyon")])
def test_a_route_needs_servers_of_the_file(sites, name, hint):
    error = mom("route", "paris", name, "-f", sites, code=1).stderr
    assert f"has no server '{name}': {hint}" in error


def test_the_picture_as_plain_text(sites):
    assert (
        mom("render", sites).stdout
        == """\
sites
core (matrix)
+- paris [registry]
+- lyon
|  +- north (fifo)
|     +- lille
+- nice
   +- south (matrix)
      +- nimes
      +- nantes
"""
    )


def test_the_picture_for_graphviz_and_mermaid_has_each_node_and_membership_once(sites):
    dot = mom("render", sites, "--as", "dot").stdout
    assert dot.startswith('graph "sites" {') and dot.endswith("}\n")
    edges = [f'"d:{domain}" -- "s:{server}";' for domain, members in SITES.items() for server in members]
    assert re.findall(r'"d:.*" -- .*', dot) == edges
    assert re.findall(r'"(?:d|s):(\w+)" \[', dot) == [*SITES, *build(SITES).servers]

    mermaid = mom("render", sites, "--as", "mermaid").stdout
    assert mermaid.startswith("graph LR\n")
    nodes = dict(re.findall(r'([ds]\d+)(?:\(\[|\[)"([\w.-]+)', mermaid))
    found = [(nodes[a], nodes[b]) for a, b in re.findall(r"(d\d+) --- (s\d+)", mermaid)]
    assert found == [(domain, server) for domain, members in SITES.items() for server in members]


@pytest.mark.parametrize("layout", ["bus", "chain", "tree", "flat"])
@pytest.mark.parametrize("n", [1, 2, 40, 1000])
def test_a_picture_shows_every_server_and_domain_once(layout, n):
    bus = generate(layout, n)
    lines = [re.split(r"[ |+-]+", line.strip(" |+-"))[0] for line in render.ascii(bus).splitlines()]
    assert sorted(lines) == sorted([layout, *bus.servers, *bus.domains])


def test_a_long_chain_can_be_drawn():
    assert len(render.ascii(generate("chain", 1500, size=2)).splitlines()) == 1 + 1500 + 1499


def test_generate_prints_a_file_or_makes_one(tmp_path):
    printed = mom("generate", "bus", "9", "--name", "nine", "--stomp", "7000").stdout
    out = tmp_path / "nine.toml"
    assert mom("generate", "bus", "9", "--name", "nine", "--stomp", "7000", "--out", str(out)).stdout == ""
    assert out.read_text() == printed
    bus = config.load(out)
    assert (bus.name, len(bus.servers), list(bus.domains)) == ("nine", 9, ["backbone", "d1", "d2", "d3"])
    assert (bus.servers["s9"].stomp, bus.servers["s9"].data) == ("127.0.0.1:7008", str(tmp_path / "var/s9"))
    assert "is there already" in mom("generate", "bus", "4", "--out", str(out), code=1).stderr
    assert out.read_text() == printed


@pytest.mark.parametrize(
    ("args", "code", "reason"),
    [
        (["ring", "4"], 2, "'ring' is not one of"),
        (["bus", "0"], 2, "0 is not in the range"),
        (["flat", "3", "--ordering", "fifo"], 1, "domains.d1.ordering: fifo keeps causal order between two servers"),
        (["flat", "3", "--ordering", "lifo"], 1, "no ordering back end is named 'lifo'"),
        (["tree", "9", "--size", "2", "--children", "2"], 1, "have room for 1 to 1 child domains"),
        (["flat", "3", "--port", "65535"], 1, "3 servers need as many ports from 65535 on, and there are 1"),
    ],
)
def test_what_cannot_be_generated_is_refused(args, code, reason):
    assert reason in mom("generate", *args, code=code).stderr


XML = """<config name="old"><domain name="D 1"/><nat/>
<server id="0" name="s0" hostname="localhost"><network domain="D 1" port="1"/></server>
<server id="1" name="s1" hostname="localhost"><network domain="D 1" port="2"/></server></config>"""


def test_import_makes_a_file_and_lists_what_it_changed_and_left_out(tmp_path):
    source, out = tmp_path / "a3servers.xml", tmp_path / "new.toml"
    source.write_text(XML)
    told = mom("import", str(source), "--out", str(out)).stderr.splitlines()
    assert told == [
        "domain 'D 1' is now D-1",
        "no counterpart: server ids 0, 1 (servers are known by name)",
        "no counterpart: nat",
    ]
    assert out.read_text().splitlines()[:3] == [f"# {line}" for line in told]
    assert list(config.load(out).domains) == ["D-1"]
    assert mom("import", str(source)).stdout == out.read_text()
    found = json.loads(mom("import", str(source), "-o", "json").stdout)
    assert found["renamed"] == [{"what": "domain", "old": "D 1", "new": "D-1"}]
    assert found["left_out"] == ["server ids 0, 1 (servers are known by name)", "nat"]
    assert found["domains"][0]["servers"] == ["s0", "s1"]


def test_import_refuses_a_cycle(tmp_path):
    source = tmp_path / "a3servers.xml"
    source.write_text(
        XML.replace("<nat/>", '<domain name="E"/>').replace("<network", '<network domain="E" port="9"/><network')
    )
    error = mom("import", str(source), code=1).stderr
    assert "all its servers are in D-1 too, which is a cycle (E – s0 – D-1 – s1 – E): delete E" in error
