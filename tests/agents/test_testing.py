"""The test kit for authors: a bus in virtual time, with kills, and its verdict."""

import subprocess
import sys
from pathlib import Path

import pytest

from mombroker.agents import Agent, notification
from mombroker.agents.testing import Bus
from mombroker.core.errors import MomError
from tests.agents.shop_agents import Due, HowMany, Ledger, Remind, Shop

ROOT = Path(__file__).resolve().parents[2]
AGENTS = {"lyon/shop": Shop, "nice/ledger": Ledger}


def test_clients_and_agents_of_a_bus_in_memory():
    bus = Bus(AGENTS, servers=["paris"])
    assert bus.receive("/queue/answers", server="paris") == []
    bus.put("/queue/orders", {"item": "tea"}, reply_to="/queue/answers", server="paris")
    bus.put("/queue/orders", {"item": "tea"}, properties={"size": 3}, server="nice")
    (answer,) = bus.receive("/queue/answers")
    assert answer.json() == {"left": 9} and answer.correlation_id
    assert bus.state("shop")["sold"] == 2 and bus.state("nice/ledger")["lines"] == ["tea", "tea"]
    assert bus.show("shop")["tables"]["stock"] == {"rows": 1, "first": [{"key": "tea", "value": 8}]}
    bus.check()


def test_time_passes_when_the_test_says_so():
    bus = Bus(AGENTS)
    bus.send("shop", Remind("rent", 3_600))
    bus.settle()
    begun = bus.now
    bus.advance(3_500)
    assert bus.state("shop")["reminded"] == [] and bus.now - begun == 3_500 * 10**9
    bus.kill("lyon")
    bus.advance(200)
    assert bus.state("shop")["reminded"] == ["rent"]


def test_a_server_that_is_down_is_only_slow():
    bus = Bus(AGENTS, servers=["paris"])
    bus.kill("nice", down=float("inf"))
    bus.put("/queue/orders", {"item": "tea"}, server="paris")
    bus.advance(5)
    with pytest.raises(AssertionError, match="nice is down"):
        bus.settle(1)
    bus.start("nice")
    bus.settle()
    assert bus.state("ledger")["lines"] == ["tea"]
    bus.check()


@pytest.mark.parametrize("killed", [True, False])
def test_clients_go_on_while_another_server_is_away(killed):
    bus = Bus(AGENTS, servers=["paris"])
    assert bus.receive("/queue/answers", server="lyon") == []
    if killed:
        bus.kill("nice", down=float("inf"))
    else:
        bus.cut("lyon", "nice")
    begun = bus.now
    bus.put("/queue/orders", {"item": "tea"}, reply_to="/queue/answers", server="lyon")
    (answer,) = bus.receive("/queue/answers")
    assert answer.json() == {"left": 9}
    assert bus.request("shop", HowMany("tea"), server="lyon") == {"left": 9}
    assert bus.now - begun < 60 * 10**9
    with pytest.raises(AssertionError, match="nice"):
        bus.settle(1)
    if killed:
        bus.start("nice")
    else:
        bus.heal("lyon", "nice")
    bus.settle()
    assert bus.state("ledger")["lines"] == ["tea"]


@pytest.mark.parametrize("seed", range(8))
def test_every_order_is_sold_once_whatever_crashes(seed):
    bus = Bus(AGENTS, servers=["paris"], seed=seed, crashes=6, breaks=4)
    sure = 0
    for number in range(20):
        try:
            bus.put("/queue/orders", {"item": f"{number}"}, server="paris")
            sure += 1
        except MomError:
            bus.advance(1)
    bus.settle()
    sold, lines = bus.state("shop")["sold"], bus.state("ledger")["lines"]
    assert sure <= sold <= 20 and len(lines) == sold and len(set(lines)) == sold
    bus.check()


def test_what_gets_no_answer_is_told_and_may_be_done_all_the_same():
    bus = Bus(AGENTS)
    bus.world.after(1, bus.kill, "lyon")  # before anything can be durable
    with pytest.raises(MomError, match="lyon gave no answer to send: it may be done all the same"):
        bus.send("shop", Remind("rent", 0))
    bus.advance(1)
    assert bus.state("shop")["reminded"] == []
    lost = done = 0
    for seed in range(8):
        bus, sure = Bus(AGENTS, seed=seed, crashes=6), []
        for number in range(20):
            try:
                bus.send("shop", Remind(f"{number}", 0))
                sure.append(f"{number}")
            except MomError:
                bus.advance(1)
        bus.settle()
        reminded = bus.state("shop")["reminded"]
        assert set(sure) <= set(reminded) and len(set(reminded)) == len(reminded)
        lost, done = lost + 20 - len(reminded), done + len(reminded) - len(sure)
    assert lost and done


def test_a_collection_is_no_field_and_a_sentence_says_where_it_is():
    bus = Bus(AGENTS)
    with pytest.raises(KeyError, match=r"no field stock: collections .* by `show\(agent\)`"):
        bus.state("shop")["stock"]


def test_the_same_seed_is_the_same_run():
    runs = []
    for seed in (3, 3, 4):
        bus = Bus(AGENTS, seed=seed, crashes=5)
        bus.send("shop", Remind("rent"))
        bus.advance(100)
        runs.append((bus.world.calls, bus.now))
    assert runs[0] == runs[1] != runs[2]


def test_what_production_would_refuse_is_refused():
    bus = Bus(AGENTS)
    with pytest.raises(MomError, match="no server"):
        bus.kill("rome")
    with pytest.raises(MomError, match="wildcard"):
        bus.publish("/topic/*", "x")
    bus.send("shop", Due("x"))

    @notification(name="tests.kit.Nobody")
    class Nobody:
        x: int

    bus.send("shop", Nobody(1))
    bus.settle()
    assert "no reaction to tests.kit.Nobody" in bus.deadletters()[0]["reason"]

    class Local(Agent): ...

    with pytest.raises(MomError, match="no class of a module"):
        Bus({"a/b": Local})
    with pytest.raises(MomError, match="at least one server"):
        Bus({})


def test_the_fixture_judges_at_the_end(tmp_path):
    (tmp_path / "test_shop.py").write_text(
        "from tests.agents.shop_agents import Shop, Remind\n"
        "def test_good(mom_bus):\n"
        "    bus = mom_bus({'lyon/shop': Shop})\n"
        "    bus.send('shop', Remind('rent', 1))\n"
        "    bus.advance(2)\n"
        "    assert bus.state('shop')['reminded'] == ['rent']\n"
        "def test_bad(mom_bus):\n"
        "    bus = mom_bus({'lyon/shop': Shop})\n"
        "    bus.kill('lyon', down=float('inf'))\n"
    )
    words = ["-p", "mombroker.agents.pytest_plugin", "-p", "no:cacheprovider", "-q", str(tmp_path / "test_shop.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert "2 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "lyon is down" in done.stdout
