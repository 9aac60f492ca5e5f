"""@stomp/stompjs, the client of browsers and Node, over WebSocket; its part is in stompjs.mjs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.snippets import fenced, said
from tests.stomp.test_stomp_py import one_server

SCRIPT = Path(__file__).parent / "stompjs.mjs"
HOME = Path(sys.prefix) / "stompjs"  # where npm puts the library
STEPS = ["send", "binary", "ack", "transaction", "megabyte", "beats", "reconnect", "subprotocol", "many", "error"]
# Node has a WebSocket of its own from version 22 on.
SOCKET = 'import { WebSocket } from "ws"; globalThis.WebSocket ??= WebSocket;'


@pytest.fixture(scope="module")
def home():
    """The folder with the library and our script. Without Node it is skipped, but not where nothing may be skipped."""
    if shutil.which("npm") is None:
        assert "MOM_SKIP_NOTHING" not in os.environ, "install nodejs and npm"
        pytest.skip("stompjs needs nodejs and npm")
    if not (HOME / "node_modules" / "ws").is_dir():
        HOME.mkdir(exist_ok=True)
        subprocess.run(
            ["npm", "install", "--silent", "--no-audit", "--no-fund", "@stomp/stompjs@7", "ws@8"], cwd=HOME, check=True
        )
    shutil.copy(SCRIPT, HOME)
    (HOME / "socket.mjs").write_text(SOCKET)
    return HOME


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = one_server(tmp_path_factory.mktemp("solo"))
    yield made
    made.down()


@pytest.mark.parametrize("step", STEPS)
def test_stompjs(home, server, step):
    run = subprocess.run(
        ["node", "--import", "./socket.mjs", SCRIPT.name, str(server.http), step],
        cwd=home, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (run.stdout, run.returncode) == (f"{step} done\n", 0), run.stderr


def test_what_the_readme_shows(home, server):
    """README.md, word for word: it ends by itself, and the message is consumed."""
    code = fenced("README.md", "js")
    assert "8161" in code
    (home / "readme.mjs").write_text(code.replace("8161", str(server.http)))
    assert said("node", "--import", "./socket.mjs", "readme.mjs", folder=home) == "cooking one pizza\n"
    assert server.json("queue", "show", "orders")["messages"] == 0
