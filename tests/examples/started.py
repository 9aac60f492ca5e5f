"""Examples as they are started by hand: as programs of their own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed(example: str, *arguments: str) -> list[str]:
    """The lines that `python -m examples.EXAMPLE ARGUMENTS` prints."""
    command = [sys.executable, "-m", f"examples.{example}", *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert not ended.returncode, ended.stderr
    return ended.stdout.splitlines()
