"""The import of JORAM's a3servers.xml."""

import pytest

from mombroker.admin.topology import joram
from mombroker.core.errors import MomError, TopologyError
from mombroker.core.topology import Domain, Server

A3SERVERS = """\
<?xml version="1.0" encoding="UTF-8"?>
<!-- two sites & a spare -->
<!DOCTYPE config SYSTEM "a3config.dtd" [
  <!ELEMENT config (property*, domain*, server*)>
]>
<config name="Our bus">
  <property name="Transaction" value="fr.dyade.aaa.util.NTransaction"/>
  <domain name="D 1" network="fr.dyade.aaa.agent.PoolNetwork"/>
  <domain name="D2"/>
  <domain name="D3"/>
  <server id="0" name="s0" hostname="localhost">
    <network domain="D 1" port="16301"/>
    <network domain="D2" port="16302"/>
    <service class="org.objectweb.joram.mom.proxies.ConnectionManager" args="root root"/>
    <service class="org.objectweb.joram.mom.proxies.tcp.TcpProxyService" args="16010"/>
    <nat sid="1" natHost="gate" natPort="7"/>
  </server>
  <server id="1" name="Zürich &amp; Genf" hostname="localhost">
    <network domain="D 1" port="16303"/>
    <property name="x" value="two&#10;lines"/>
  </server>
  <server id="12" name="s0" hostname="nice.example">
    <network domain="D2" port="16301"/>
  </server>
  <server id="3" name="spare" hostname="localhost"/>
  <transient id="40" server="0"/>
</config>
"""


def doc(body="", before=""):
    return f'{before}<config name="c">{body}</config>'.encode()


def server(number, *domains, host="localhost", name=None):
    networks = "".join(f'<network domain="{domain}" port="{16300 + number}"/>' for domain in domains)
    return f'<server id="{number}" name="{name or f"s{number}"}" hostname="{host}">{networks}</server>'


def domains(*names):
    return "".join(f'<domain name="{name}"/>' for name in names)


def test_a_server_with_port_0_which_only_dials_gets_a_free_port_and_is_listed():
    """As those have that JORAM's HTTP networks connect from behind a firewall."""
    ports = {"s0": {"D1": 16301}, "s1": {"D1": 0}, "s2": {"D1": 16300, "D2": 0}, "s3": {"D2": 16303}}
    body = domains("D1", "D2")
    for at, (name, networks) in enumerate(ports.items()):
        inner = "".join(f'<network domain="{domain}" port="{port}"/>' for domain, port in networks.items())
        body += f'<server id="{at}" name="{name}" hostname="localhost">{inner}</server>'
    found = joram.parse(doc(body))
    assert {name: each.port for name, each in found.topology.servers.items()} == {
        "s0": 16301, "s1": 16302, "s2": 16300, "s3": 16303,
    }  # fmt: skip
    assert "server s1: port 0 for D1 (in JORAM it only dials; here all listen)" in found.left_out
    assert "server s1 without a port (it listens on 16302)" in found.left_out
    assert "server s2: port 0 for D2 (port 16300 serves all its domains)" in found.left_out


def test_servers_domains_and_ports_become_a_topology():
    bus = joram.parse(A3SERVERS.encode()).topology
    assert bus.servers == {
        "s0": Server("s0", "localhost", 16301, "localhost:16010", "var/s0"),
        "Zurich-Genf": Server("Zurich-Genf", "localhost", 16303, None, "var/Zurich-Genf"),
        "s0-2": Server("s0-2", "nice.example", 16301, None, "var/s0-2"),
    }
    assert bus.domains == {"D-1": Domain("D-1", ("s0", "Zurich-Genf")), "D2": Domain("D2", ("s0", "s0-2"))}
    assert (bus.name, bus.registry, bus.secret_file) == ("Our-bus", "s0", "bus.secret")


def test_names_that_are_illegal_or_taken_are_changed_and_listed():
    assert joram.parse(A3SERVERS.encode()).renamed == [
        ("bus", "Our bus", "Our-bus"),
        ("domain", "D 1", "D-1"),
        ("server", "Zürich & Genf", "Zurich-Genf"),
        ("server", "s0", "s0-2"),
    ]


def test_whatever_has_no_counterpart_is_listed():
    found = joram.parse(A3SERVERS.encode())
    assert found.left_out == [
        "domain D-1: network fr.dyade.aaa.agent.PoolNetwork (every link is TCP)",
        "server s0: port 16302 for D2 (port 16301 serves all its domains)",
        'server s0: service class="org.objectweb.joram.mom.proxies.ConnectionManager" args="root root"',
        'server s0: service class="org.objectweb.joram.mom.proxies.tcp.TcpProxyService" args="16010" '
        "(clients speak STOMP on port 16010)",
        'server s0: nat sid="1" natHost="gate" natPort="7"',
        'server Zurich-Genf: property name="x" value="two\nlines"',
        "server ids 0, 1, 12, 3 (servers are known by name)",
        'property name="Transaction" value="fr.dyade.aaa.util.NTransaction"',
        'transient id="40" server="0"',
        "domain D3 of 0 servers (it has nothing to order)",
        "server spare in no domain (it can be a bus of its own)",
        "no secret yet: write one into bus.secret, the same for all servers",
    ]
    assert all(remark.isprintable() for remark in found.remarks())


def test_unknown_attributes_and_elements_anywhere_are_listed():
    body = '<domain name="d" x="1"><y/></domain>' + server(0, "d") + server(1, "d")
    body = body.replace('port="16300"', 'port="16300" z="2"').replace(
        'hostname="localhost"', 'hostname="localhost" w="3"', 1
    )
    assert joram.parse(doc(body + "<cluster/>")).left_out == [
        'domain d: x="1"', "domain d: y", 'server s0: network d: z="2"', 'server s0: w="3"',
        "server ids 0, 1 (servers are known by name)", "cluster",
    ]  # fmt: skip


def test_a_cyclic_file_is_refused_with_the_cycle():
    body = domains("d1", "d2", "d3") + server(1, "d1", "d3") + server(2, "d1", "d2") + server(3, "d2", "d3")
    with pytest.raises(TopologyError) as refused:
        joram.parse(doc(body))
    (error,) = refused.value.errors
    assert error.startswith("domains.d3.servers: d1 – s2 – d2 – s3 – d3 – s1 – d1 is a cycle")


def test_one_server_without_a_network_gets_a_port():
    found = joram.parse(doc(server(0)))
    assert found.topology.servers["s0"].listen == "localhost:16300"
    assert "server s0 without a port (it listens on 16300)" in found.left_out


def test_all_that_cannot_be_read_is_told_at_once():
    body = domains("d", "d") + server(0, "d", "e") + server(0, "d") + server(2, "d").replace("16302", "${p}")
    with pytest.raises(TopologyError) as refused:
        joram.parse(doc(body))
    assert refused.value.errors[:4] == [
        "domain 'd' is declared twice: declare it once",
        "server s0 is in a domain 'e' that is not declared: declare it, or delete the network",
        "servers s0 and s0-2 both have the id '0': give each its own",
        "server s2: '${p}' is no port: write a number from 1 to 65535",
    ]


BOMB = '<!DOCTYPE config [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (doc("&b;", BOMB), "it declares or uses the entity 'a'; entities are refused"),
        (doc("", '<!DOCTYPE config [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]>'), "the entity 'p'"),
        (doc("", '<!DOCTYPE config [<!ENTITY x SYSTEM "file:///etc/passwd">]>'), "the entity 'x'"),
        (doc("&x;", '<!DOCTYPE config SYSTEM "a3config.dtd">'), "the entity 'x'"),
        (
            doc('<domain name="&x;"/>', '<!DOCTYPE config SYSTEM "a3config.dtd">'),
            "not well-formed XML: undefined entity",
        ),
        (doc("&x;"), "not well-formed XML: undefined entity"),
        (b"<config>", "not well-formed XML: no element found"),
        (b"", "not well-formed XML"),
        (b"<project/>", "the root element is project, not config"),
        (doc(), "it declares no server"),
        (doc(server(0) + server(1)), "no two of its servers share a domain"),
    ],
)
def test_what_is_refused(content, reason):
    with pytest.raises(MomError, match=reason):
        joram.parse(content)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1"])
def test_the_declared_encoding_holds(encoding):
    text = A3SERVERS.replace("UTF-8", encoding.removesuffix("-sig"))
    assert "Zurich-Genf" in joram.parse(text.encode(encoding)).topology.servers


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "a3servers.xml"
    with pytest.raises(MomError, match="a3servers.xml: no such file or directory: give an a3servers.xml"):
        joram.read(path)
    path.write_bytes(doc())
    with pytest.raises(MomError, match="a3servers.xml: it declares no server"):
        joram.read(path)
    path.write_bytes(b"<a>")
    with pytest.raises(MomError, match="a3servers.xml: not well-formed"):
        joram.read(path)
