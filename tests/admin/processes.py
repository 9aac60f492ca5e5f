"""A bus of real server processes in a folder of its own, for tests of the command line."""

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from mombroker.admin.cli.main import cli
from mombroker.admin.demo import free_ports

ROOT = Path(__file__).resolve().parent.parent.parent

# Beside the topology file, from where its servers import it.
CLERKS = """
from mombroker.agents import Agent, notification, reacts

@notification
class Note:
    text: str
    to: list = []

class Clerk(Agent):
    notes: list = []

    @reacts
    def note(self, note: Note) -> None:
        if note.text.startswith("bad"):
            raise ValueError(f"cannot file {note.text}")
        self.notes.append(note.text)
        if note.to:
            self.send(note.to, Note(note.text + " again"))
""".replace("to: list = []", "to: list = __import__('dataclasses').field(default_factory=list)")


def write_topology(folder: Path, domains: dict[str, str], agents: dict[str, str], more: str = "") -> Path:
    """`domains` maps a name to its servers, one letter each; `agents` maps a name to its server. All are clerks."""
    servers = sorted({server for members in domains.values() for server in members})
    lines = [f'[bus]\nname = "test"\nregistry = "{servers[0]}"\nallow = ["clerks"]']
    for server, port in zip(servers, free_ports(len(servers)), strict=True):
        lines.append(f'[servers.{server}]\nlisten = "127.0.0.1:{port}"\ndata = "{server}"')
    for name, members in domains.items():
        lines.append(f'[domains.{name}]\nservers = {json.dumps(list(members))}\nordering = "matrix"')
    for name, server in agents.items():
        lines.append(f'[[agents]]\nname = "{name}"\nserver = "{server}"\nclass = "clerks:Clerk"')
    (folder / "clerks.py").write_text(CLERKS)
    file = folder / "bus.toml"
    file.write_text("\n".join([*lines, more]))
    return file


class Processes:
    """urls   server -> where its clients connect, if `listen` has said so"""

    def __init__(self, file: Path):
        self.file = file
        self.urls: dict[str, str] = {}

    def listen(self, servers: str) -> None:
        """Let clients without a user in at these servers, which do not run yet."""
        text = self.file.read_text()
        for server, port in zip(servers, free_ports(len(servers)), strict=True):
            text = text.replace(
                f"[servers.{server}]\n", f'[servers.{server}]\nstomp = "127.0.0.1:{port}"\nanonymous = true\n'
            )
            self.urls[server] = f"stomp://127.0.0.1:{port}"
        self.file.write_text(text)

    def mom(self, *words: str, code: int | None = 0, stdin: str | bytes | None = None) -> Result:
        """Run a command in this process, with MOM_FILE set; it must end with this exit code, if one is given."""
        result = CliRunner().invoke(cli, list(words), env={"MOM_FILE": str(self.file)}, input=stdin)
        assert code in (None, result.exit_code), (words, result.output, result.exception)
        return result

    def mom_any(self, *words: str) -> Result:
        """Run a command, however it ends."""
        return CliRunner().invoke(cli, list(words), env={"MOM_FILE": str(self.file)})

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.mom(*words, "-o", "json", code=code).stdout)

    def popen(self, *words: str, stderr: Any = subprocess.PIPE) -> subprocess.Popen[str]:
        """Run a command as a process."""
        command = [sys.executable, "-m", "mombroker.admin.cli.main", *words]
        env = {**os.environ, "MOM_FILE": str(self.file), "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=stderr, text=True)

    def serve(self, server: str) -> subprocess.Popen[str]:
        """Start one server by itself; it writes to a log beside the topology file."""
        with (self.file.parent / f"{server}.txt").open("a") as log:
            return self.popen("serve", "--server", server, stderr=log)

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        process = self.popen(*words)
        out, err = process.communicate()
        assert process.returncode == code, (words, out, err)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def up(self) -> None:
        self.run("up", "--detach")

    def down(self) -> None:
        self.run("down")

    def all_up(self) -> bool:
        return CliRunner().invoke(cli, ["status"], env={"MOM_FILE": str(self.file)}).exit_code == 0

    def settle(self) -> dict[str, Any]:
        """Wait until `mom check` finds nothing under way; its report."""
        for _ in range(600):
            report = self.json("check")
            if not report["waiting"] and not report["outside_the_cut"]:
                return report
            time.sleep(0.05)
        raise AssertionError(f"the bus does not come to rest: {report}")


def in_terminal(code, columns):
    """What a terminal of so many columns shows of this program, line by line."""
    ours, its = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=its, stderr=its, env=env)
    os.close(its)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 1 << 16)
        except OSError:  # at its end
            break
    assert process.wait() == 0, shown
    return shown.decode().splitlines()
