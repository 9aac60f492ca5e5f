"""The examples of the client, against a server of examples/clients.toml."""

from pathlib import Path

import pytest

from examples import order_desk, price_service, work_queue
from tests.admin.processes import Processes, free_ports

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    listen, port = free_ports(2)
    text = (ROOT / "examples" / "clients.toml").read_text()
    file = tmp_path_factory.mktemp("clients") / "clients.toml"
    file.write_text(text.replace("16300", str(listen)).replace("61613", str(port)))
    bus = Processes(file)
    bus.up()
    yield f"stomp://127.0.0.1:{port}"
    bus.down()


def test_the_order_desk(url, capsys):
    lines = order_desk.run(url, 100)
    assert sorted(lines) == sorted(f"{word}pizza {number}" for word in ("", "confirmed: ") for number in range(100))
    for number in range(100):
        assert lines.index(f"pizza {number}") < lines.index(f"confirmed: pizza {number}")
    order_desk.main(url)
    assert capsys.readouterr().out.endswith("every order came before its answer\n")


def test_the_price_service(url, capsys):
    price_service.main(url)
    assert capsys.readouterr().out.splitlines() == [
        "margherita: 7.50", "marinara: 6.00", "quattro stagioni: 9.50", "hawaii: not ours",
    ]  # fmt: skip


def test_the_work_queue(url, capsys):
    assert work_queue.main(url) == {**{f"job {number}": 1 for number in range(4)}, "a hard job": 2}
    out = capsys.readouterr().out
    assert [f"a job that nobody can do failed at attempt {count}\n" in out for count in range(1, 5)] == [True] * 3 + [
        False
    ]
    assert "a job that nobody can do is a dead letter: given back 3 times" in out
