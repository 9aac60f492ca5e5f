"""The snippets of the README and the docs: who runs each, and those that need no more than a bus."""

import json
import re
import shutil
import subprocess
import sys
import time
import types
from typing import Any

import click
import msgpack
import pytest

from mombroker.admin.cli.group import DefaultGroup
from mombroker.admin.cli.main import cli
from mombroker.agents.agent import path_of
from mombroker.agents.declaring import NAMES
from mombroker.agents.testing import Bus as Kit
from mombroker.broker import properties
from tests.admin.processes import Processes, free_ports
from tests.broker.bench import Broker
from tests.core.bus import Bus, topology
from tests.snippets import PATIENCE_S, ROOT, commands, fenced, shell

PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md") if page.name != "cli.md")]
MARK = re.compile(r"<!-- (?:run by (?P<test>\S+)|not run by the tests: .+) -->")


def snippets(page):
    """Each block of Python, JavaScript or shell commands, with the line before it."""
    text = (ROOT / page).read_text()
    shell = r"(?:(?<=\n\n)|(?<=->\n))    (?:mom|make|python|head|mkdir|apt-get)\b"
    for found in re.finditer(rf"^```(?:python|js)\n|{shell}", text, re.M):
        before = [line for line in text[: found.start()].splitlines() if line][-1]
        yield before, text[found.start() :].partition("\n\n")[0]


@pytest.mark.parametrize("page", PAGES)
def test_every_snippet_says_which_test_runs_it_or_why_none_does(page):
    for before, code in snippets(page):
        mark = MARK.fullmatch(before)
        assert mark, f"{page} does not say what runs\n{code}"
        if mark["test"]:
            assert page in (ROOT / mark["test"]).read_text(), f"{mark['test']} does not run {page}"


@pytest.mark.parametrize("page", PAGES)
def test_every_option_that_is_shown_exists(page):
    text = re.sub(r" \\\n\s+", " ", (ROOT / page).read_text())
    for line in re.findall(r"^    mom (.*)$", text, re.M):
        command: click.Command = cli
        words = line.partition(" #")[0].split()
        while isinstance(command, click.Group):
            if isinstance(command, DefaultGroup) and words[0] not in command.commands:
                words.insert(0, command.default)
            word, *words = words
            found = command.get_command(click.Context(command), word)
            assert found is not None, f"{page}: mom {line}"
            command = found
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        shown = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert shown <= known | {"--help"}, f"{page}: mom {line}"


def test_the_greeter_of_the_readme(tmp_path):
    """README.md, in a copy of the examples on other ports."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("var", "__pycache__"))
    file = tmp_path / "examples" / "greeter.toml"
    text = file.read_text()
    for written, taken in zip(("16310", "16311", "61610", "61611"), free_ports(4), strict=True):
        assert written in text
        text = text.replace(written, str(taken))
    file.write_text(text)
    shown = shell(commands("README.md", "mom up examples/greeter.toml"), tmp_path)
    assert '{"text": "hello Ann, you are number 2"}' in shown
    assert re.search(r"^fields.greeted +2$", shown, re.M) and re.search(r"^clean +yes$", shown, re.M)
    assert shown.endswith("stopped paris, lyon\n")


def test_what_operators_and_authors_of_agents_type(tmp_path):
    """docs/agents.md and docs/operate.md, on a bus with the server lyon."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("var", "__pycache__"))
    file = tmp_path / "mombroker.toml"
    file.write_text(
        f'[bus]\nname = "test"\nallow = ["examples"]\n[servers.lyon]\nlisten = "127.0.0.1:{free_ports(1)[0]}"\n'
    )
    bus = Processes(file)
    bus.up()
    try:
        shown = shell(commands("docs/agents.md", "mom agent deploy"), tmp_path)
        assert re.search(r"^fields.greeted +1$", shown, re.M)
        shell(commands("docs/operate.md", "mom store backup"), tmp_path)
        (backup,) = (tmp_path / "backup").iterdir()
        assert backup.suffix == ".sqlite"
        shell(commands("docs/operate.md", "head -c 32"), tmp_path)
        assert (tmp_path / "bus.secret").stat().st_mode & 0o77 == 0
    finally:
        bus.down()


def test_the_collection_that_is_shown_keeps_what_it_says(monkeypatch):
    """docs/agents.md"""
    module = types.ModuleType("shown_archive")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(fenced("docs/agents.md", "python", "class Archive"), module.__dict__)
    bus = Bus(topology({"x": "abc"}, {"b/archive": "shown_archive:Archive"}))
    bus.pump()
    for text, year in (("new", 2020), ("old", 1920)):
        bus.ask("a", "send", to=["archive"], type="shown_archive.Letter", fields={"text": text, "year": year})
    assert [row.key for row in bus.stores["b"].items("b/archive", "letters", None, 10)] == [1920, 2020]
    assert bus.ask("b", "deadletters")["count"] == 0


def test_the_class_that_is_shown_migrates():
    """docs/agents.md"""
    found: dict[str, Any] = {"__name__": "shown_wallet"}
    known = dict(NAMES)
    try:
        exec(fenced("docs/agents.md", "python", "class Wallet"), found)
        wallet = found["Wallet"]("a/w", msgpack.packb({"balance": 3}), "a")
    finally:
        NAMES.clear()
        NAMES.update(known)
    assert wallet.cents == 300 and path_of(found["Wallet"]) == "bank.account:Account"


def test_the_tests_that_are_shown_pass(tmp_path):
    """docs/agents.md"""
    (tmp_path / "shop.py").write_text(fenced("docs/agents.md", "python", "class Shop"))
    (tmp_path / "test_shown.py").write_text(fenced("docs/agents.md", "python", "mom_bus"))
    words = ["-p", "mombroker.agents.pytest_plugin", "-p", "no:cacheprovider", "-q", str(tmp_path / "test_shown.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert "22 passed" in done.stdout, done.stdout + done.stderr


def test_the_first_agent_is_tested_deployed_and_used_as_it_is_written(tmp_path):
    """docs/first-agent.md, in an empty folder on other ports."""
    page, listen, stomp = "docs/first-agent.md", *free_ports(2)
    for name, kind, words in (
        ("votes.py", "python", "class Ballot"), ("test_votes.py", "python", "mom_bus"),
        ("mombroker.toml", "toml", "[bus]"), ("vote.py", "python", "import stomp"),
    ):  # fmt: skip
        text = fenced(page, kind, words).replace("16370", str(listen)).replace("61670", str(stomp))
        (tmp_path / name).write_text(text)
    shown = shell(commands(page, "mom up --detach"), tmp_path)
    assert "1 passed" in shown and '{"tea": 2, "coffee": 1}' in shown
    assert re.search(r"^class +votes:Ballot$", shown, re.M) and shown.endswith("stopped main\n"), shown
    assert len(commands(page, "mom up --detach")) + len(commands(page, "pip install")) <= 10


@pytest.fixture
def shown(monkeypatch):
    """Makes a module of a program of docs/patterns.md."""

    def make(name, words):
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(fenced("docs/patterns.md", "python", words), module.__dict__)
        return module

    return make


def test_the_saga_that_is_shown_gives_back_what_it_has_taken(tmp_path):
    """docs/patterns.md"""
    (tmp_path / "travel.py").write_text(fenced("docs/patterns.md", "python", "class Agency"))
    (tmp_path / "test_shown.py").write_text(fenced("docs/patterns.md", "python", "mom_bus"))
    words = ["-p", "mombroker.agents.pytest_plugin", "-p", "no:cacheprovider", "-q", str(tmp_path / "test_shown.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert "10 passed" in done.stdout, done.stdout + done.stderr


def test_a_request_that_is_passed_on_is_answered_by_the_other(shown):
    """docs/patterns.md"""
    made = shown("shown_desk_expert", "class Expert")
    bus = Kit({"a/desk": made.Desk, "c/expert": made.Expert}, servers=["b"], seed=1, crashes=4)
    assert [bus.request("desk", made.Ask(words), server="b").words for words in ("one", "two")] == ["ONE", "TWO"]
    bus.check()


def test_what_is_being_sold_is_not_put_up_again(shown):
    """docs/patterns.md"""
    made = shown("shown_auction", "class House")
    bus = Kit({"a/house": (made.House, {"bidders": ["ann"]}), "b/ann": (made.Bidder, {"most": 3})})
    bus.kill("b", down=float("inf"))
    bus.send("house", made.Auction("clock", seconds=10), server="a")
    bus.advance(1)
    assert bus.state("house")["open"]["clock"]["bids"] == {}
    bus.send("house", made.Auction("clock"), server="a")
    bus.advance(1)
    bus.start("b")
    bus.settle()
    assert ["there is an auction of clock already" in each["reason"] for each in bus.deadletters()] == [True]
    assert bus.state("house")["open"] == {}


@pytest.mark.parametrize("crashes", [0, 6])
def test_an_auction_ends_with_the_last_bid_or_in_time(shown, crashes):
    """docs/patterns.md"""
    made = shown("shown_auction", "class House")
    bidders = {"b/ann": (made.Bidder, {"most": 3}), "c/bob": (made.Bidder, {"most": 5})}
    bus = Kit({"a/house": (made.House, {"bidders": ["ann", "bob"]}), **bidders}, seed=crashes, crashes=crashes)
    assert bus.request("house", made.Auction("vase")) == made.Sold("vase", "c/bob", 5)
    bus.kill("c", down=float("inf"))
    bus.send("house", made.Auction("clock", seconds=10), server="a")
    bus.advance(5)
    assert list(bus.state("house")["open"]["clock"]["bids"].values()) == [3]
    bus.advance(6)
    assert bus.state("house")["open"] == {}
    bus.start("c")
    bus.settle()
    assert not bus.deadletters()
    bus.check()


def test_a_lease_ends_unless_it_is_renewed(shown):
    """docs/patterns.md"""
    made = shown("shown_lease", "class Lease")
    bus = Kit({"a/lease": made.Lease}, servers=["b"])
    bus.receive("/topic/leases", server="b")
    assert bus.request("lease", made.Renew("ann"), server="b") == {"yours": True}
    assert bus.request("lease", made.Renew("bob"), server="a") == {"yours": False}
    for _ in range(3):
        bus.advance(20)
        assert bus.request("lease", made.Renew("ann"), server="b") == {"yours": True}
    bus.kill("a", down=40)
    bus.advance(45)
    (ended,) = bus.receive("/topic/leases")
    assert ended.json() == {"ended": "ann"} and bus.request("lease", made.Renew("bob"), server="a") == {"yours": True}
    bus.check()


def test_who_has_not_come_for_a_day_is_forgotten(shown):
    """docs/patterns.md"""

    def rows(bus):
        shown = bus.show("visits")
        return shown["tables"]["seen"]["rows"], shown["items"]["last"]["rows"]

    made = shown("shown_visits", "class Visits")
    bus = Kit({"a/visits": made.Visits}, servers=["b"])
    made.PIECE = 20
    for number in range(150):
        bus.put("/queue/visits", f"v{number % 100}", server="b")
    bus.settle()
    assert rows(bus) == (100, 100)
    bus.advance(86_400 - 3_600)
    for name in ("v0", "v99"):
        bus.put("/queue/visits", name, server="b")
    bus.advance(7_200)
    seen = bus.show("visits")["tables"]["seen"]["first"]
    assert rows(bus) == (2, 2) and [row["value"][0] for row in seen] == [3, 2]
    bus.check()


def test_the_table_that_is_shown_keeps_prices(monkeypatch):
    """docs/agents.md"""
    module = types.ModuleType("shown_prices")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(fenced("docs/agents.md", "python", "class Prices"), module.__dict__)
    b = Broker(topology({"x": "abc"}, {"b/prices": "shown_prices:Prices"}))
    for price in (1, 2):
        b.connect("c").send("queue:prices", f'{{"item": "tea", "price": {price}}}')
    (row,) = b.ask("b", "agent", agent="prices")["tables"]["rows"]["first"]
    assert row == {"key": "tea", "value": {"price": 2, "changes": 2}}
    b.ask("a", "send", to=["prices"], type="shown_prices.Price", fields={"item": "tea"})
    assert b.ask("b", "deadletters")["count"] == 0


CASHIER = """
@notification
class Pay:
    who: str

class Cashier(Agent):
    @reacts
    def pay(self, note: Pay):
        self.group("ledger").cast(Paid(note.who, 5))
"""


def test_the_ledgers_that_are_shown_keep_the_same(monkeypatch):
    """docs/agents.md"""
    module = types.ModuleType("shown_ledger")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(fenced("docs/agents.md", "python", "class Ledger") + CASHIER, module.__dict__)
    bus = Kit({**{f"{server}/ledger-{server}": module.Ledger for server in "ab"}, "c/cashier": module.Cashier})
    bus.settle()
    for who in ("ada", "bob", "ada"):
        bus.send("cashier", module.Pay(who))
    bus.settle()
    bus.kill("b")
    bus.send("cashier", module.Pay("bob"))
    bus.settle()
    assert [bus.state(f"ledger-{server}")["balances"] for server in "ab"] == 2 * [{"ada": 10, "bob": 10}]
    bus.check()


def test_the_desk_that_is_shown_sells_what_is_ordered(monkeypatch):
    """docs/agents.md"""
    module = types.ModuleType("shown_desk")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(fenced("docs/agents.md", "python", "class Desk"), module.__dict__)
    b = Broker(topology({"x": "abc"}, {"b/desk": "shown_desk:Desk", "c/shelf": "shown_desk:Shelf"}))
    replies, archive = b.connect("c").subscribe("r", "queue:replies"), b.connect("a").subscribe("s", "queue:archive")
    more = {"reply_to": "/queue/replies", "properties": properties.pack({"region": "eu"})}
    b.connect("a").send("queue:orders", '{"item": "tea", "count": 2}', **more)
    b.connect("a").send("queue:orders", '{"item": "milk"}', "no order of ours")
    assert b.fields("b/desk") == {"sold": 2} and replies.texts == ['{"sold": 2}']
    (kept,) = archive.got
    assert kept.body == b"tea" and properties.read(kept.message.properties) == {"count": 2}
    assert kept.message.priority == 2 and b.queue("queue:orders").describe()["ready"] == 2


def shown_module(monkeypatch, name, words):
    """A block of docs/groups.md, as a module that agents can be made of."""
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(fenced("docs/groups.md", "python", words), module.__dict__)
    return module


def test_the_eldest_member_is_in_charge(monkeypatch):
    """docs/groups.md"""
    made = shown_module(monkeypatch, "shown_guard", "class Guard")
    bus = Kit({f"{server}/guard-{server}": made.Guard for server in "abc"}, seed=1, crashes=3)
    chiefs = {bus.state(f"guard-{server}")["chief"] for server in "abc"}
    (chief,) = chiefs
    bus.send(chief, made.Resign())
    bus.settle()
    left = [server for server in "abc" if chief != f"{server}/guard-{server}"]
    (after,) = {bus.state(f"guard-{server}")["chief"] for server in left}
    assert after in [f"{server}/guard-{server}" for server in left] and bus.state(after)["watches"]
    bus.check()


def test_the_first_claim_is_the_same_at_all_members(monkeypatch):
    """docs/groups.md"""
    made = shown_module(monkeypatch, "shown_buyer", "class Buyer")
    bus = Kit({f"{server}/buyer-{server}": made.Buyer for server in "abc"}, seed=2, crashes=3)
    for lot in range(5):
        for server in "abc":
            bus.send(f"buyer-{server}", made.Want(f"lot {lot}"), server=server)
    bus.settle()
    owners = [bus.state(f"buyer-{server}")["owner"] for server in "abc"]
    assert len(owners[0]) == 5 and owners[0] == owners[1] == owners[2]
    bus.check()


@pytest.mark.long
def test_the_sale_goes_on_three_servers_as_it_is_written(tmp_path):
    """docs/groups.md, in an empty folder on other ports."""
    page, text = "docs/groups.md", fenced("docs/groups.md", "toml", "[bus]")
    for written, taken in zip(("16380", "16381", "16382", "61680"), free_ports(4), strict=True):
        text = text.replace(written, str(taken))
    (tmp_path / "mombroker.toml").write_text(text)
    (tmp_path / "sale.py").write_text(fenced(page, "python", "class Buyer"))
    lines = commands(page, "sale.Want lot=clock")
    shown = shell(lines[:3], tmp_path)
    for agent in ("ann", "ben", "cas"):
        owned(agent, "clock", tmp_path)
    shown += shell(lines[3:], tmp_path)
    owner = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))["who"]
    assert owner in ("paris/ben", "nice/cas") and f'fields.owner  {{"clock": "{owner}"}}' in shown
    assert "3 of 3 servers are up" in shown and "sale   lyon  3     no" in shown
    lines = commands(page, "sale.Want lot=vase")
    shell(lines[:2], tmp_path)
    owned("ben", "vase", tmp_path)
    shown = shell(lines[2:4], tmp_path)
    owned("cas", "vase", tmp_path)
    shown += shell(lines[4:], tmp_path)
    line = f'fields.owner  {{"clock": "{owner}", "vase": "lyon/ann"}}'
    assert shown.count(line) == 2 and re.search(r"^clean +yes$", shown, re.M), shown


def owned(agent, lot, folder):
    """Wait until a buyer knows who has it."""
    until = time.monotonic() + PATIENCE_S
    while f'"{lot}"' not in shell([f"mom agent show {agent} -c fields.owner"], folder):
        assert time.monotonic() < until


@pytest.mark.long
def test_the_replicated_bank_answers_as_it_is_written(tmp_path):
    """docs/groups.md, in a copy of the examples on other ports."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("var", "__pycache__"))
    file = tmp_path / "examples" / "replicated_bank.toml"
    text = file.read_text()
    for written, taken in zip(("16390", "16391", "16392", "61690"), free_ports(4), strict=True):
        assert written in text
        text = text.replace(written, str(taken))
    file.write_text(text)
    shown = shell(commands("docs/groups.md", "replicated_bank.Transfer"), tmp_path)
    assert shown == fenced("docs/groups.md", "text", '"balance": 900')


def test_all_charts_have_one_history(monkeypatch):
    """docs/groups.md"""
    made = shown_module(monkeypatch, "shown_chart", "class Chart")
    agents = {f"{server}/feed-{server}": made.Feed for server in "ab"}
    agents |= {f"{server}/chart-{server}": made.Chart for server in "abc"}
    bus = Kit(agents, seed=3, crashes=3, policies=[{"match": "topic:prices", "order": "total"}])
    for price in range(10):
        bus.send(f"feed-{'ab'[price % 2]}", made.Quote(price), server="c")
    bus.settle()
    histories = [bus.state(f"chart-{server}")["history"] for server in "abc"]
    assert sorted(histories[0]) == list(range(10)) and histories[0] == histories[1] == histories[2]
    bus.check()
