"""A topology file that says from which revision of its bus it was made, and has been applied."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.output import whole
from mombroker.core.errors import MomError

MARK = b"\xef\xbb\xbf"  # some editors begin a file with it


class Applied:
    """A file as it is before it is applied, which may take long: somebody may save another one in its place meanwhile,
    that does not have what was applied."""

    def __init__(self, file: Path):
        self.path = options.found(file)
        self._content = self._read()

    def _read(self) -> bytes:
        with suppress(OSError):
            return self.path.read_bytes() if self.path.is_file() else b""  # what comes from a pipe is gone
        return b""

    def renew(self, number: int) -> None:
        """From now on it is made from this revision; nothing else in it changes, and nothing if it does not say. What
        became of it is told."""
        from mombroker.admin.topology.made_from import KEY
        from mombroker.net import toml

        path, content = self.path, self._content
        try:
            bare = content.removeprefix(MARK)
            text = bare.decode()
            if toml.number_of(text, KEY) in (None, number):
                return
            if self._read() != content:
                has = f"write {KEY} = {number} into it if it has all that was applied"
                click.echo(f"mom: {path} has been changed meanwhile: {has}", err=True)
                return
            self._content = content[: len(content) - len(bare)] + toml.with_number(text, KEY, number).encode()
            _write(path, self._content)
        except (OSError, ValueError, MomError):
            click.echo(f"mom: {path} cannot be written: write {KEY} = {number} into it before other changes", err=True)
        else:
            click.echo(f"{path} says {KEY} = {number} now", err=True)


def _write(path: Path, content: bytes) -> None:
    """In the place of what is there, with its mode, and its owner and group where the system allows that. Raises
    OSError or MomError."""
    if not os.access(path, os.W_OK):
        raise PermissionError(path)
    with whole(path) as draft:
        draft.write_bytes(content)
        was = path.stat()
        for owner in (-1, was.st_uid):  # who may not give a file away may still give it to a group of theirs
            with suppress(OSError):
                os.chown(draft, owner, was.st_gid)
        shutil.copymode(path, draft)  # last: a new owner takes bits away
