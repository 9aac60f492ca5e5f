"""The styles of process groups that the paper lists (003, §2, §7.1, table I), as groups of numbered processes."""

Groups = dict[str, tuple[int, ...]]


def peer(size: int) -> Groups:
    """All cooperate as equals, and multicast."""
    return {"peers": tuple(range(size))}


def client_server(servers: int, clients: int) -> Groups:
    """A group for each client, with all servers. `collapsed` has the same clients in one."""
    first = tuple(range(servers))
    return {f"client{at + 1}": (*first, servers + at) for at in range(clients)}


def collapsed(servers: int, clients: int) -> Groups:
    """The clients' groups as one large group: who a multicast is not for drops it. Vectors have s + c fields at most,
    in place of the s + 1 of each client."""
    return {"service": tuple(range(servers + clients))}


def diffusion(servers: int, clients: int) -> Groups:
    """Servers multicast to all, clients only listen: vectors have a field for each server."""
    return {"quotes": tuple(range(servers + clients))}


def hierarchical(subgroups: int, size: int) -> Groups:
    """A root of one member of each subgroup, and the subgroups: most multicasts stay in one of these."""
    below = {f"part{at + 1}": tuple(range(at * size, (at + 1) * size)) for at in range(subgroups)}
    return {"root": tuple(members[0] for members in below.values()), **below}
