"""What the HTTP port is asked beside the verbs: made in a thread, one at a time, of files and of other servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mombroker.core.errors import MomError

Result = dict[str, Any] | str  # an answer, or the sentence of a refusal
Make = Callable[..., dict[str, Any]]  # of arguments by name; raises MomError


class Aside:
    """run    does work in a thread, and calls its second argument with the result in that of the reactor
    makes  by name, what makes an answer
    """

    def __init__(
        self, run: Callable[[Callable[[], Result], Callable[[Result], None]], None], makes: Mapping[str, Make]
    ):
        self.makes, self._run = makes, run
        self._busy: set[str] = set()

    def ask(self, name: str, args: dict[str, Any], answer: Callable[[Result], None]) -> None:
        make, busy = self.makes[name], self._busy
        if name in busy:
            answer(f"another {name} is being made: ask again")
            return

        def work() -> Result:
            try:
                return make(**args)
            except MomError as error:
                return str(error)
            except Exception as error:  # of a file or a back end that somebody gave: the server goes on
                return f"the {name} cannot be made ({type(error).__name__}: {error})"

        def done(found: Result) -> None:
            busy.discard(name)
            answer(found)

        busy.add(name)
        self._run(work, done)
