"""What the README and docs/jms.md show of the client, word for word, against a server."""

import re
from pathlib import Path

from mombroker import jms
from tests.snippets import fenced, program

ROOT = Path(__file__).parents[2]


def empty(server):
    with jms.connect(f"stomp://127.0.0.1:{server.port}") as context, context.consumer("orders") as consumer:
        while consumer.receive(0.2) is not None:
            pass


def test_the_readme(server, tmp_path):
    empty(server)
    code = fenced("README.md", "python", "mombroker.jms")
    assert program(code, tmp_path, _61613=server.port) == "one pizza 30\nmarinara\n"
    assert len([line for line in code.splitlines() if line]) <= 10


def test_the_guide(server, tmp_path):
    """docs/jms.md"""
    empty(server)
    assert program(fenced("docs/jms.md", "python", "weather"), tmp_path, _61613=server.port) == (
        "one pizza {'size': 30, 'JMSXDeliveryCount': 1} 1\n/topic/weather.rome sun\n"
    )


def test_the_guide_to_asyncio(server, tmp_path):
    empty(server)
    code = fenced("docs/jms.md", "python", "aio.connect")
    assert program(code, tmp_path, _61613=server.port) == "pizza 0\npizza 1\npizza 2\n"


def test_the_guide_names_everything():
    """Each error, each public method and option."""
    page = (ROOT / "docs" / "jms.md").read_text()
    errors = [name for name, each in vars(jms).items() if isinstance(each, type) and issubclass(each, jms.JmsError)]
    methods = [name for name in vars(jms.Context) if not name.startswith("_")]
    internal = {
        "put",
        "acknowledge_one",
        "reject",
        "give_back",
        "received",
        "failed",
        "tell",
        "listen",
        "await_listener",
        "check_room",
        "call_when_done",
        "is_listener",
        "unsettled_of",
    }
    options = jms.Options.__dataclass_fields__
    wanted = {*errors, *methods, *options} - internal - {"queue", "topic"}
    assert {name for name in wanted if not re.search(rf"\b{name}\b", page)} == set()
