"""Clients ask agents of a bus of real processes: by frames, by Python and by `mom`."""

import asyncio
import json
import re
import socket

import pytest

from examples.greeter import Greeting, Hello
from mombroker.jms import aio
from mombroker.stomp.frames import SERVER, Limits, Parser
from mombroker.stomp.headers import V12
from tests.admin.processes import ROOT, Processes, free_ports
from tests.snippets import commands, fenced, program

HELLO = ["--type", "examples.greeter.Hello"]


@pytest.fixture(scope="module")
def bus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bus")
    (folder / "examples").symlink_to(ROOT / "examples")
    ports = free_ports(4)
    lines = ['[bus]\nname = "test"\nregistry = "a"']
    for at, server in enumerate("ab"):
        lines.append(f'[servers.{server}]\nlisten = "127.0.0.1:{ports[at]}"\nstomp = "127.0.0.1:{ports[2 + at]}"')
        lines.append(f'anonymous = true\ndata = "{server}"')
    lines.append('[domains.d]\nservers = ["a", "b"]')
    lines.append('[[agents]]\nname = "greeter"\nserver = "b"\nclass = "examples.greeter:Greeter"')
    (folder / "bus.toml").write_text("\n".join(lines))
    made = Processes(folder / "bus.toml")
    made.stomp = ports[2]
    made.up()
    yield made
    made.down()


def test_the_guides_show_how_an_agent_is_asked(bus):
    program(fenced("docs/jms.md", "python", ".ask("), bus.file.parent, _61613=bus.stomp)
    (line,) = commands("docs/agents.md", "mom request")
    words = line.split("'")
    asked = bus.mom(*words[0].split()[1:], "-s", "a", words[1], *words[2].split())
    assert asked.stdout.startswith('{"text": "hello Ann, you are number')


def test_what_an_agent_does_not_take_is_one_line(bus):
    wrong = bus.mom("request", "-s", "a", "/agent/greeter", '{"whom": "Ann"}', *HELLO, code=1)
    assert wrong.stderr == "Error: b/greeter: examples.greeter.Hello has no field whom; it has who\n"
    nobody = bus.mom("request", "-s", "a", "/agent/nobody", "{}", *HELLO, code=1)
    assert nobody.stderr == "Error: nobody: no agent is named 'nobody' on this bus: see `mom agent list`\n"
    refused = bus.mom("send", "-s", "a", "/agent/nobody", "{}", *HELLO, code=1)
    assert "no agent is named 'nobody'" in refused.stderr


def test_an_agent_takes_what_asks_for_no_answer(bus):
    before = bus.json("agent", "show", "greeter")["fields"]["greeted"]
    bus.mom("send", "-s", "a", "/agent/greeter", '{"who": "Ann"}', *HELLO)
    bus.settle()
    assert bus.json("agent", "show", "greeter")["fields"]["greeted"] == before + 1


def test_the_frame_of_the_guide_is_answered(bus):
    shown = re.search(r"^    SEND\n(?:.*\n)*?.*\"who\".*\n", (ROOT / "docs/agents.md").read_text(), re.M)[0]
    frame = "\n".join(line.removeprefix("    ") for line in shown.splitlines())
    parser = Parser(Limits(), V12, SERVER)
    with socket.create_connection(("127.0.0.1", bus.stomp)) as client:
        client.sendall(b"CONNECT\naccept-version:1.2\n\n\0" + frame.encode() + b"\0")
        found = []
        while len(found) < 2:
            if (frame := parser.next()) is not None:
                found.append(frame)
            else:
                parser.feed(client.recv(65_536))
    connected, answer = found
    assert (connected.command, answer.command, answer.headers["correlation-id"]) == ("CONNECTED", "MESSAGE", "17")
    assert answer.headers["type"] == "examples.greeter.Greeting" and "hello Ann" in json.loads(answer.body)["text"]


def test_a_program_of_asyncio_asks_many_at_a_time(bus):
    async def ask():
        async with await aio.connect(f"stomp://127.0.0.1:{bus.stomp}") as context:
            asked = [context.ask("greeter", Hello(f"number {number}")) for number in range(50)]
            return await asyncio.gather(*asked)

    answers = asyncio.run(ask())
    assert all(isinstance(each, Greeting) for each in answers) and len({each.text for each in answers}) == 50
    assert [each.text.startswith(f"hello number {at}, you") for at, each in enumerate(answers)] == [True] * 50
