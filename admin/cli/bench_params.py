"""What the commands of `mom bench` have in common: lists of numbers and of words, and the disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Numbers(click.ParamType[list[int]]):
    """Numbers with commas between."""

    name = "N,N"

    def __init__(self, least: int):
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):
            return value
        try:
            found = [int(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"{value!r} is no list of numbers like 10,20", param, ctx)
        if min(found) < self.least:
            self.fail(f"{min(found)} is less than {self.least}", param, ctx)
        return found


class Words(click.ParamType[list[str]]):
    """Words of a set, with commas between."""

    name = "A,B"

    def __init__(self, *known: str):
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        if isinstance(value, list):
            return value
        found: list[str] = value.split(",")
        for word in found:
            if word not in self.known:
                self.fail(f"{word!r} is none of {', '.join(self.known)}", param, ctx)
        return found


def folder_option(command: F) -> F:
    return click.option(
        "--folder", type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Measure the disk of this folder. [default: that of temporary files]",
    )(command)  # fmt: skip
