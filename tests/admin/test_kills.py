"""Real processes, real files, `kill -9` at any moment, and exact counts at the end."""

import random
import signal
import time

import pytest

from tests.admin.processes import ROOT, Processes, free_ports

ACCOUNTS = 8
SERVERS = "abcd"


def bank(folder, payments: int) -> Processes:
    """A bus of four servers in two domains with two accounts on each; c is the router."""
    ports = dict(zip(SERVERS, free_ports(len(SERVERS)), strict=True))
    lines = ['[bus]\nname = "bank"\nregistry = "a"']
    lines += [f'[servers.{name}]\nlisten = "127.0.0.1:{port}"\ndata = "{name}"' for name, port in ports.items()]
    lines += ['[domains.d1]\nservers = ["a", "b", "c"]', '[domains.d2]\nservers = ["c", "d"]']
    for number in range(1, ACCOUNTS + 1):
        fields = f"{{ accounts = {ACCOUNTS}, to_pay = {payments}, seed = {number} }}"
        lines.append(
            f'[[agents]]\nname = "account{number}"\nserver = "{SERVERS[number % 4]}"\n'
            f'class = "examples.bank:Account"\nfields = {fields}'
        )
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "bus.toml").write_text("\n".join(lines))
    return Processes(folder / "bus.toml")


@pytest.mark.parametrize("kills, payments", [(3, 30), pytest.param(100, 2500, marks=pytest.mark.long)])
def test_a_bank_keeps_its_money_and_its_counts_through_kills(tmp_path, kills, payments):
    bus, chance = bank(tmp_path, payments), random.Random(kills)
    servers = {name: bus.serve(name) for name in SERVERS}
    for _ in range(kills):
        time.sleep(chance.uniform(0.0, 1.0))  # also while the last one comes up again
        name = chance.choice(SERVERS)
        servers[name].kill()
        assert servers[name].wait() == -signal.SIGKILL
        servers[name] = bus.serve(name)
    while not bus.all_up():
        time.sleep(0.1)
    report = bus.settle()
    accounts = [bus.json("agent", "show", f"account{number}")["fields"] for number in range(1, ACCOUNTS + 1)]
    bus.down()
    assert [server.wait() for server in servers.values()] == [0] * len(SERVERS)
    assert report["clean"] and report["not_judged"] == report["ended"] == 0
    assert report["reactions"] == ACCOUNTS * (1 + 2 * payments)  # its creation; each payment and its receipt
    assert [account["paid"] for account in accounts] == [payments] * ACCOUNTS
    assert sum(account["balance"] for account in accounts) == 1000 * ACCOUNTS
