"""rhea, the client of AMQP 1.0 for Node; its part is in rhea.mjs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.amqp.server import one_server
from tests.snippets import fenced, said

SCRIPT = Path(__file__).parent / "rhea.mjs"
HOME = Path(sys.prefix) / "rhea"  # where npm puts the library
STEPS = ["send", "topic", "outcomes", "reply", "drain", "large", "durable", "many", "refused"]


@pytest.fixture(scope="module")
def home():
    """The folder with the library and our script. Without Node it is skipped, but not where nothing may be skipped."""
    if shutil.which("npm") is None:
        assert "MOM_SKIP_NOTHING" not in os.environ, "install nodejs and npm"
        pytest.skip("rhea needs nodejs and npm")
    if not (HOME / "node_modules" / "rhea").is_dir():
        HOME.mkdir(exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "rhea@3"], cwd=HOME, check=True)
    shutil.copy(SCRIPT, HOME)
    return HOME


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = one_server(tmp_path_factory.mktemp("solo"))
    yield made
    made.down()


@pytest.mark.parametrize("step", STEPS)
def test_rhea(home, server, step):
    run = subprocess.run(
        ["node", SCRIPT.name, str(server.port), step], cwd=home, capture_output=True, text=True, timeout=120
    )  # fmt: skip
    assert (run.stdout, run.returncode) == (f"{step} done\n", 0), run.stderr


def test_what_the_docs_show(home, server):
    """docs/amqp.md, word for word: it ends by itself, and the message is consumed."""
    code = fenced("docs/amqp.md", "js")
    assert "5672" in code
    (home / "shown.mjs").write_text(code.replace("5672", str(server.port)))
    assert said("node", "shown.mjs", folder=home) == "one pizza for ann\n"
    assert server.json("queue", "show", "orders")["messages"] == 0
