"""A rate limiter: calls of a service pass an agent of their customer's, which lets so many through. Nobody makes these
agents: each is there from its customer's first call on.

    mom up examples/rate_limiter.toml --detach
    python -m examples.rate_limiter
"""

import sys

from mombroker import jms
from mombroker.agents import Agent, notification, reacts

CALLS = "/queue/calls"
SECOND = 1_000_000_000


@notification(expose=True)
class Call:
    work: str


@notification
class Passed:
    left: int


@notification
class Refused:
    """Call again in so many seconds."""

    seconds: float


class Limit(Agent):
    """Lets `burst` calls through at once, and one more every `seconds`. What it lets through is in the queue of the
    service, and the customer is told so, in the transaction that counts it: a crash neither forgets a call nor lets one
    through twice.

    due   when all of the burst may be used again, in ns: a call adds its time to it (GCRA, as of ITU-T I.371)
    """

    burst: int
    seconds: float
    due: int = 0

    @reacts
    def call(self, call: Call) -> None:
        each = int(self.seconds * SECOND)
        due = max(self.due, self.now) + each
        room = self.burst * each - (due - self.now)
        if room < 0:
            self.reply(Refused(-room / SECOND))
            return
        self.due = due
        self.put(CALLS, {"customer": self.id.partition("/limit-")[2], "work": call.work})
        self.reply(Passed(room // each))


def main(url: str = "stomp://localhost:61660") -> None:
    with jms.connect(url) as service, jms.connect(url) as customers:
        calls = service.consumer(CALLS)
        for customer, count in (("ann", 4), ("bob", 1)):
            answers = [customers.ask(f"limit-{customer}", Call(f"call {n + 1}"), timeout=30) for n in range(count)]
            print(f"{customer}:", ", ".join(map(_said, answers)))
        print("to do:", ", ".join("{customer}'s {work}".format(**calls.receive(30).body) for _ in range(4)))


def _said(answer: Passed | Refused) -> str:
    if isinstance(answer, Refused):
        return f"refused for {answer.seconds:.0f} s"
    return f"passed, {answer.left} left"


if __name__ == "__main__":
    main(*sys.argv[1:])
