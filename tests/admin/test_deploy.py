"""A new version of a program, server by server, while clients ask: its class has another name, module and fields."""

import signal
import time

from tests.admin.processes import Processes, free_ports
from tests.admin.test_question_kills import CLIENTS, PATIENCE_S, Asker

SERVERS = "abc"
BETWEEN = 40  # answers, at least, before each restart
OLD = """
from mombroker.agents import Agent, notification, reacts

@notification(expose=True)
class Deposit:
    number: int
    open: str = ""

@notification
class Share:
    client: str
    number: int

@notification
class Booked:
    number: int
    place: int
    teller: str

class Account(Agent):
    '''Keeps half of what it is given, for which it has the next one answer, or one that it opens on another server.'''
    next: str
    seen: list = []
    shares: int = 0
    balance: int = 0

    @reacts
    def deposit(self, note: Deposit) -> None:
        self.seen.append(note.number)
        self.balance += 1
        to = self.create(Account, server=note.open, next=self.id) if note.open else self.next
        self.send(to, Share(self.sender, note.number))

    @reacts
    def share(self, note: Share) -> None:
        self.balance += 1
        self.shares += 1
        self.send(note.client, Booked(note.number, self.shares, self.id))
"""
NEW = """
from mombroker.agents import Agent, agent, notification, reacts

@notification(name="accounts.Deposit", expose=True)
class Deposit:
    number: int
    open: str = ""

@notification(name="accounts.Share")
class Share:
    client: str
    number: int
    memo: str = "of before"             # new, so it has a default

@notification(name="accounts.Booked")
class Booked:
    number: int
    place: int
    teller: str

@agent(version=2, aliases=["accounts:Account"])
class Wallet(Agent):
    next: str
    seen: list = []
    shares: int = 0
    cents: int = 0                      # instead of balance
    memos: dict = {}                    # new

    @classmethod
    def migrate(cls, version: int, fields: dict) -> dict:
        cents = 100 * fields.pop("balance")
        return {**fields, "cents": cents}

    @reacts
    def deposit(self, note: Deposit) -> None:
        self.seen.append(note.number)
        self.cents += 100
        to = self.create(Wallet, server=note.open, next=self.id) if note.open else self.next
        self.send(to, Share(self.sender, note.number, "of now"))

    @reacts
    def share(self, note: Share) -> None:
        self.cents += 100
        self.shares += 1
        self.memos[note.memo] = self.memos.get(note.memo, 0) + 1
        self.send(note.client, Booked(note.number, self.shares, self.id))
"""


def bus(folder) -> Processes:
    """Three servers in two domains, b is the router; an account on each, in a circle."""
    ports = free_ports(2 * len(SERVERS))
    lines = ['[bus]\nname = "bank"\nregistry = "a"\nallow = ["accounts", "wallets"]']
    for at, name in enumerate(SERVERS):
        lines.append(f'[servers.{name}]\nlisten = "127.0.0.1:{ports[at]}"\ndata = "{name}"\nanonymous = true')
        lines.append(f'stomp = "127.0.0.1:{ports[at + len(SERVERS)]}"')
    lines += ['[domains.d1]\nservers = ["a", "b"]', '[domains.d2]\nservers = ["b", "c"]']
    for home, other in ("ab", "bc", "ca"):
        fields = f'{{ next = "account-{other}" }}'
        lines.append(
            f'[[agents]]\nname = "account-{home}"\nserver = "{home}"\nclass = "accounts:Account"\nfields = {fields}'
        )
    (folder / "accounts.py").write_text(OLD)
    (folder / "bus.toml").write_text("\n".join(lines))
    made = Processes(folder / "bus.toml")
    made.urls = [f"stomp://127.0.0.1:{port}" for port in ports[len(SERVERS) :]]
    return made


class Customer(Asker):
    """Deposits, at each account in turn; now and then another one is opened for it."""

    answer = "accounts.Booked"

    def _ask(self, context) -> None:
        at = len(self.asked)
        number = at * CLIENTS + self.first
        self.asked.append(number)
        opened = {"open": SERVERS[at // 7 % 3]} if at % 7 == 0 else {}
        how = {"type": "accounts.Deposit", "reply_to": f"/queue/{self.queue}", "correlation_id": f"c{number}"}
        context.send(f"/agent/account-{SERVERS[at % 3]}", json={"number": number, **opened}, wait=at % 10 == 0, **how)


def test_a_class_is_renamed_and_changed_server_by_server_under_load(tmp_path):
    processes = bus(tmp_path)
    servers = {name: processes.serve(name) for name in SERVERS}
    while not processes.all_up():
        time.sleep(0.1)
    customers = [Customer(number, processes.urls) for number in range(CLIENTS)]
    for customer in customers:
        customer.start()

    def answered(more: int) -> None:
        """Until so many more answers have come."""
        wanted, end = sum(len(customer.answers) for customer in customers) + more, time.monotonic() + PATIENCE_S
        while sum(len(customer.answers) for customer in customers) < wanted:
            assert all(customer.is_alive() for customer in customers), [customer.error for customer in customers]
            assert time.monotonic() < end, processes.mom_any("status").output
            time.sleep(0.05)

    answered(BETWEEN)
    (tmp_path / "accounts.py").unlink()
    (tmp_path / "wallets.py").write_text(NEW)
    for name in "cab":  # the registry and the router stay as they are for a while
        servers[name].send_signal(signal.SIGTERM)
        assert servers[name].wait() == 0
        servers[name] = processes.serve(name)
        answered(BETWEEN)
    for customer in customers:
        customer.enough.set()
    for customer in customers:
        customer.join(PATIENCE_S)
        assert customer.error is None and not customer.is_alive(), (customer.error, len(customer.asked))
    report = processes.settle()
    letters = processes.json("agent", "deadletters", "list")
    rows = processes.json("agent", "list", "--limit", "100000")
    ids = [row["agent"] for row in rows if row["class"] == "accounts:Account"]
    wallets = [processes.json("agent", "show", id)["fields"] for id in ids]
    processes.down()
    assert [server.wait() for server in servers.values()] == [0] * len(SERVERS)
    assert report["clean"] and not letters
    asked = sorted(number for customer in customers for number in customer.asked)
    assert sorted(number for wallet in wallets for number in wallet["seen"]) == asked
    assert [len(each) for customer in customers for each in customer.answers.values()] == [1] * len(asked)
    # One that nobody has used since its server came back is stored as it was.
    assert sum(wallet["cents"] if "cents" in wallet else 100 * wallet["balance"] for wallet in wallets) == 200 * len(
        asked
    )
    memos = [memo for wallet in wallets for memo in wallet.get("memos", {})]
    assert {"of before", "of now"} <= set(memos)
