"""Pictures of a topology as text: a tree of domains and servers, Graphviz, Mermaid."""

from collections.abc import Callable

from mombroker.core.topology import Domain, Topology


def ascii(topology: Topology) -> str:
    """The bus as a tree: under a domain its servers, under a router its other domains; the most central is on top."""
    lines = [topology.name]
    shown: set[str] = set()
    for domain in sorted(topology.domains.values(), key=lambda domain: -_routers(topology, domain)):
        if domain.name not in shown:
            lines.extend(_branch(topology, domain, shown))
    lines.extend(_label(topology, server) for server in topology.servers if not topology.domains_of(server))
    return "\n".join(lines)


def _routers(topology: Topology, domain: Domain) -> int:
    return sum(len(topology.domains_of(member)) > 1 for member in domain.members)


def _branch(topology: Topology, top: Domain, shown: set[str]) -> list[str]:
    # With a stack: a daisy of a thousand domains is deeper than Python's recursion.
    lines: list[str] = []
    stack: list[tuple[str, str, Domain | str]] = [("", "", top)]
    while stack:
        first, rest, node = stack.pop()
        below: list[Domain | str]
        if isinstance(node, Domain):
            shown.add(node.name)
            lines.append(f"{first}{node.name} ({node.backend})")
            # The router that led here stands above already.
            below = [member for member in node.members if first == "" or member not in shown]
        else:
            shown.add(node)
            lines.append(first + _label(topology, node))
            below = [domain for domain in topology.domains_of(node) if domain.name not in shown]
        for at, child in enumerate(reversed(below)):
            stack.append((rest + "+- ", rest + ("|  " if at else "   "), child))
    return lines


def _label(topology: Topology, server: str) -> str:
    return f"{server} [registry]" if server == topology.registry and len(topology.servers) > 1 else server


def dot(topology: Topology) -> str:
    """For Graphviz: `mom topology render --as dot | dot -Tsvg`."""
    lines = [f'graph "{topology.name}" {{', "  node [fontname=sans];"]
    lines += [f'  "d:{each.name}" [label="{each.name}\\n{each.backend}"];' for each in topology.domains.values()]
    lines += [f'  "s:{name}" [label="{name}", shape=box];' for name in topology.servers]
    lines += [f'  "d:{domain}" -- "s:{server}";' for domain, server in _edges(topology)]
    return "\n".join([*lines, "}"])


def mermaid(topology: Topology) -> str:
    """For Markdown pages that draw Mermaid."""
    domains = {name: f"d{at}" for at, name in enumerate(topology.domains)}
    servers = {name: f"s{at}" for at, name in enumerate(topology.servers)}
    lines = ["graph LR"]
    lines += [f'  {domains[each.name]}(["{each.name}: {each.backend}"])' for each in topology.domains.values()]
    lines += [f'  {servers[name]}["{name}"]' for name in topology.servers]
    lines += [f"  {domains[domain]} --- {servers[server]}" for domain, server in _edges(topology)]
    return "\n".join(lines)


def _edges(topology: Topology) -> list[tuple[str, str]]:
    return [(domain.name, server) for domain in topology.domains.values() for server in domain.members]


FORMS: dict[str, Callable[[Topology], str]] = {"ascii": ascii, "dot": dot, "mermaid": mermaid}
