"""What the README and the docs show, run as a stranger would: as it is written, by processes, in a folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 600  # before a test gives up; nothing is measured by it
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
ENVIRONMENT.pop("MOM_FILE", None)


def fenced(page: str, kind: str, words: str = "") -> str:
    """The block of this kind in which these words are."""
    blocks = re.findall(rf"```{kind}\n(.*?)```", (ROOT / page).read_text(), re.S)
    (code,) = [block for block in blocks if words in block]
    return str(code)


def commands(page: str, words: str) -> list[str]:
    """The lines of the block of shell commands in which these words are."""
    blocks = re.findall(r"(?:^    \S.*\n)+", (ROOT / page).read_text(), re.M)
    (block,) = [block for block in blocks if words in block]
    return [line.removeprefix("    ") for line in block.splitlines()]


def said(*words: str, folder: Path) -> str:
    """What a program prints that ends well."""
    done = subprocess.run(words, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def program(code: str, folder: Path, **instead: object) -> str:
    """What a Python program prints; `instead` are ports, by an underscore and the one that is written."""
    for written, taken in instead.items():
        assert written[1:] in code
        code = code.replace(written[1:], str(taken))
    (folder / "shown.py").write_text(code)
    return said(sys.executable, "shown.py", folder=folder)


def shell(lines: list[str], folder: Path) -> str:
    """What commands print, one after the other in one shell."""
    return said("bash", "-euc", "\n".join(lines), folder=folder)
