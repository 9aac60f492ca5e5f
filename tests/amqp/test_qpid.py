"""Qpid JMS, the client of AMQP for Java: what Jakarta Messaging asks for, row by row; qpid/ has its part."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.admin.processes import Processes, free_ports
from tests.admin.replicas import Replicated
from tests.amqp.server import one_server
from tests.snippets import fenced

PROJECT = Path(__file__).parent / "qpid"
HOME = Path(sys.prefix) / "qpid"  # where Maven puts the libraries and what it compiles
LIBRARIES = "dependency:copy-dependencies"


def jdk():
    return next((f"{tool} is missing" for tool in ("mvn", "javac") if shutil.which(tool) is None), "")


@pytest.fixture(scope="module")
def java():
    """Runs a class of ours; its output. Without Maven it is skipped, but not where nothing may be skipped."""
    if lack := jdk():
        assert "MOM_SKIP_NOTHING" not in os.environ, f"install maven and a JDK: {lack}"
        pytest.skip(f"Qpid JMS needs Maven and a JDK: {lack}")
    shutil.copytree(PROJECT, HOME, dirs_exist_ok=True)
    wanted, had = (PROJECT / "pom.xml").read_bytes(), HOME / "lib" / "pom.xml"
    if not had.is_file() or had.read_bytes() != wanted:
        maven = ["mvn", "-q", "-B", LIBRARIES, f"-DoutputDirectory={HOME / 'lib'}"]
        subprocess.run(maven, cwd=HOME, check=True)
        had.write_bytes(wanted)
    path = f"{HOME / 'classes'}{os.pathsep}{HOME / 'lib'}/*"
    sources = map(str, HOME.glob("src/main/java/*.java"))
    subprocess.run(["javac", "-nowarn", "-d", HOME / "classes", "-cp", path, *sources], check=True, capture_output=True)

    def run(name, *words):
        done = subprocess.run(["java", "-cp", path, name, *words], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = one_server(tmp_path_factory.mktemp("solo"))
    yield made
    made.down()


@pytest.fixture(scope="module")
def rows(java, server):
    """What became of each row, all in one run."""
    said = java("Checklist", f"amqp://127.0.0.1:{server.port}")
    return dict(line.rsplit(": ", 1) if line.endswith(": ok") else line.split(": ", 1) for line in said.splitlines())


def test_each_row_of_jakarta_messaging_is_right(java, rows, server):
    assert len(rows) > 100 and list(rows) == java("Checklist").splitlines()
    assert {name: said for name, said in rows.items() if said != "ok"} == {}
    assert "Traceback" not in Path(server.file.parent, "main", "log.txt").read_text(), "it was told as a fault of ours"


def compiled(code, name, server):
    """A class that is shown, for our port."""
    assert "5672" in code
    file = HOME / "src" / "main" / "java" / f"{name}.java"
    file.write_text(code.replace("5672", str(server.port)))
    path = f"{HOME / 'classes'}{os.pathsep}{HOME / 'lib'}/*"
    subprocess.run(["javac", "-d", HOME / "classes", "-cp", path, file], check=True)
    return name


@pytest.mark.parametrize("name", ["Shown", "Sprung"])
def test_what_the_docs_show(java, server, name):
    """docs/amqp.md, word for word."""
    assert java(compiled(fenced("docs/amqp.md", "java", f"class {name} "), name, server)) == "one pizza\n"


def test_what_the_readme_shows(java, server):
    """README.md, word for word, in a class; it takes six lines."""
    code = fenced("README.md", "java")
    assert code.count("\n") == 6
    start = "import jakarta.jms.*;\nimport org.apache.qpid.jms.JmsConnectionFactory;\npublic class Readme {\n"
    whole = f"{start}public static void main(String[] args) {{\n{code}}}}}\n"
    assert java(compiled(whole, "Readme", server)) == "cooking one pizza\n"


@pytest.mark.long
def test_a_client_at_a_standby_goes_to_the_leader_and_to_the_next_one(java, tmp_path):
    """Each replica redirects who comes to it; the first leader is killed with its disk."""
    ports = free_ports(6)
    places = [
        f'{{ name = "r{at}", listen = "127.0.0.1:{ports[at]}", amqp = "127.0.0.1:{ports[at + 3]}", data = "r{at}" }}'
        for at in range(3)
    ]
    (tmp_path / "bus.toml").write_text(
        f'[bus]\nname = "one"\n[servers.a]\nanonymous = true\nredirect = true\nreplicas = [{", ".join(places)}]\n'
    )
    bus = Replicated(tmp_path / "bus.toml")
    bus.server, bus.names, bus.folder = "a", ("r0", "r1", "r2"), tmp_path
    bus.up()
    try:
        first = bus.leader()
        standby = next(port for name, port in zip(bus.names, ports[3:], strict=True) if name != first)
        path = f"{HOME / 'classes'}{os.pathsep}{HOME / 'lib'}/*"
        others = ",".join(f"amqp://127.0.0.1:{port}" for port in ports[3:] if port != standby)
        url = f"failover:(amqp://127.0.0.1:{standby},{others})"
        run = subprocess.Popen(["java", "-cp", path, "Failover", url, "300"], stdout=subprocess.PIPE, text=True)
        for line in run.stdout:
            if line == "sent 99\n":
                bus.kill(first)
        assert line == "got 300 []\n"
        assert bus.leader() != first
    finally:
        bus.down()


@pytest.mark.long
def test_a_client_goes_on_at_another_server_when_its_own_is_killed(java, tmp_path):
    """Nothing is lost, and what comes again is marked, or the same message sent again."""
    listen, ports = free_ports(2), free_ports(2)
    servers = "".join(
        f'[servers.{name}]\nlisten = "127.0.0.1:{at}"\namqp = "127.0.0.1:{port}"\ndata = "{name}"\nanonymous = true\n'
        for name, at, port in zip("ab", listen, ports, strict=True)
    )
    (tmp_path / "bus.toml").write_text(
        f'[bus]\nname = "pair"\nregistry = "b"\n{servers}[domains.d]\nservers = ["a", "b"]\n'
    )
    bus = Processes(tmp_path / "bus.toml")
    processes = {name: bus.serve(name) for name in "ab"}
    try:
        while not bus.all_up():
            assert all(each.poll() is None for each in processes.values())
        bus.mom("queue", "create", "over", "--server", "b")
        url = f"failover:(amqp://127.0.0.1:{ports[0]},amqp://127.0.0.1:{ports[1]})"
        path = f"{HOME / 'classes'}{os.pathsep}{HOME / 'lib'}/*"
        run = subprocess.Popen(["java", "-cp", path, "Failover", url, "300"], stdout=subprocess.PIPE, text=True)
        for line in run.stdout:
            if line == "sent 99\n":
                processes["a"].kill()
                processes["a"].wait()
            elif line == "sent 199\n":  # what it had accepted, and what its consumer had, waits for it
                processes["a"] = bus.serve("a")
        assert line == "got 300 []\n"
    finally:
        for each in processes.values():
            each.kill()
            each.wait()
