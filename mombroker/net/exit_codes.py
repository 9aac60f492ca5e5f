"""The exit codes of `mom`, which runs servers, too: each has one meaning."""

from enum import IntEnum, unique
from typing import Self


@unique
class ExitCode(IntEnum):
    """`says`: what `mom --help` tells of it."""

    says: str

    DONE = 0, "done; a server has stopped in good order"
    REFUSED = 1, "refused; one line says why"
    USAGE = 2, "wrong usage"
    UNWRITABLE = 3, "a store can no longer be written: to try again does not help"
    WRONG = 4, "what was judged is wrong: a bus, a store, a file"
    INCOMPLETE = 5, "not all: some of it could not be asked, read or judged"
    NOTHING = 6, "nothing to give: nothing is there, or nothing came in time"
    CHANGES = 7, "there is something to be changed: only where --detailed-exitcode is given"
    CRASHED = 70, "an error of the program; please report it"

    def __new__(cls, number: int, says: str) -> Self:
        code = int.__new__(cls, number)
        code._value_, code.says = number, says
        return code
