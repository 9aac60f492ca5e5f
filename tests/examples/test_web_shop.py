"""The web shop: as it is shown, by processes; and in memory, with customers on two sites while servers crash."""

import json
import random
from pathlib import Path

import pytest

from examples.web_shop import Bought
from mombroker.agents.notifications import TYPES, from_json
from mombroker.broker.commands import Ask
from mombroker.net import config
from tests.admin.processes import Processes, free_ports
from tests.broker.bench import Broker
from tests.examples.started import printed

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "web_shop.toml"
SITES = ("shop", "depot", "bank")


def test_as_it_is_shown(tmp_path):
    text, ports = FILE.read_text(), {}
    for written in ("16340", "16341", "16342", "61640", "61641"):
        (ports[written],) = free_ports(1)
        text = text.replace(written, str(ports[written]))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "web_shop.toml").write_text(text)
    bus = Processes(tmp_path / "web_shop.toml")
    bus.up()
    try:
        lines = printed("web_shop", *(f"stomp://localhost:{ports[port]}" for port in ("61640", "61641")))
    finally:
        bus.down()
    assert lines == [
        "ann pays 6 for 2 tea", "ann gets no tea: only 98 of tea are left", "bob gets no gold: bob has not so much",
        "bob pays 15 for 3 cake",
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_goods_and_money_add_up_through_crashes(seed):
    chance, b = random.Random(seed), Broker(config.load(FILE))
    clients, asked = [], 0

    def connected():
        """A customer at the shop or the depot, who reads the answers there and takes parcels."""
        site = chance.choice(SITES[:2])
        client = b.connect(site).subscribe("a", f"queue:{site}-answers").subscribe("p", "queue:parcels")
        clients.append(client)
        return client

    for _ in range(30):
        client = connected()
        for _ in range(chance.randrange(4)):
            wanted = {"item": chance.choice(("tea", "gold")), "count": chance.randint(1, 9), "card": "ann"}
            client.do(
                Ask(
                    "agent:shop", json.dumps(wanted).encode(), type="examples.web_shop.Buy", correlation=str(asked),
                    reply_to=f"/queue/{client.server}-answers",
                ),
                pump=chance.random() < 0.5,
            )  # fmt: skip
            asked += 1
            if chance.random() < 0.2:
                b.pump()
                b.reboot(chance.choice(SITES))
                client = connected()
        b.pump()
        client.close()
    got = [(each.sub, each.message) for client in clients for each in client.got]
    answers = [from_json(TYPES[message.type], message.body) for sub, message in got if sub == "a"]
    parcels = [json.loads(message.body) for sub, message in got if sub == "p"]
    bought = [answer for answer in answers if isinstance(answer, Bought)]
    stock, bank = b.fields("depot/stock"), b.fields("bank/bank")
    assert sorted(answer.order for answer in answers) == list(range(1, asked + 1))
    assert b.fields("shop/shop")["orders"] == asked and 0 < len(bought) < asked
    assert bank["earned"] == sum(answer.cost for answer in bought) == 200 - bank["accounts"]["ann"]
    assert stock["goods"] == {
        "tea": [100 - sum(each["count"] for each in parcels), 3], "cake": [40, 5], "gold": [10, 1000],
    }  # fmt: skip
    assert sorted(each["order"] for each in parcels) == sorted(answer.order for answer in bought)
    assert [b.ask(site, "deadletters")["count"] for site in SITES] == [0, 0, 0]
