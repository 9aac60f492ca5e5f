"""`mom sim compare` on the logs of real processes: the same topology needs the control bytes that it has needed."""

import time

import pytest

from tests.admin.processes import ROOT, Processes, free_ports

DOMAINS = {"north": "abcd", "south": "defg"}
SERVERS = "abcdefg"
ACCOUNTS, PAYMENTS = 10, 150


def bank(folder, first: str, second: str) -> Processes:
    """Ten accounts on seven servers, which pay each other, each as soon as it has the receipt of the one before."""
    lines = ['[bus]\nname = "bank"\nregistry = "a"']
    for name, port in zip(SERVERS, free_ports(len(SERVERS)), strict=True):
        lines.append(f'[servers.{name}]\nlisten = "127.0.0.1:{port}"\ndata = "var/{name}"')
    for (name, members), ordering in zip(DOMAINS.items(), (first, second), strict=True):
        lines.append(f'[domains.{name}]\nservers = {list(members)}\nordering = "{ordering}"'.replace("'", '"'))
    for number in range(1, ACCOUNTS + 1):
        fields = f"{{ accounts = {ACCOUNTS}, to_pay = {PAYMENTS}, seed = {number} }}"
        lines.append(
            f'[[agents]]\nname = "account{number}"\nserver = "{SERVERS[number % len(SERVERS)]}"\n'
            f'class = "examples.bank:Account"\nfields = {fields}'
        )
    lines.append(
        f'[[agents]]\nname = "auditor"\nserver = "a"\nclass = "examples.bank:Auditor"\n'
        f"fields = {{ accounts = {ACCOUNTS} }}"
    )
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "bus.toml").write_text("\n".join(lines))
    return Processes(folder / "bus.toml")


@pytest.mark.long
@pytest.mark.parametrize("pair", [("matrix", "ks"), ("vector", "rst"), ("overlay", "daisy")])
def test_a_replay_of_live_logs_costs_what_the_bus_has_paid(tmp_path, pair):
    bus = bank(tmp_path, *pair)
    bus.up()
    while not bus.all_up():
        time.sleep(0.1)
    bus.settle()
    bus.down()
    words = ["sim", "compare", str(bus.file), "--log", str(tmp_path / "var"), "--ordering", "", "--layout", ""]
    then, again = bus.json(*words)
    print(pair, then, again, sep="\n")
    assert again["packets"] == then["packets"] > 1 and again["hops"] == then["hops"] > 1
    assert again["control_bytes"] == pytest.approx(then["control_bytes"], rel=0.05)
