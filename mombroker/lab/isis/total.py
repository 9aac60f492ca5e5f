"""ABCAST within one view: one member numbers, all deliver by number (paper 003, §5.2)."""

from collections.abc import Iterable

from mombroker.lab.isis.messages import Uid


class TotalOrder:
    """The holder of the token delivers as it pleases and tells the numbers; the others wait for these.

    The order is not uniform: a holder that fails may have delivered in an order that nobody else knows.

    1. A multicast has one number, a number one multicast.
    2. The holder has no number to tell that it has not delivered.
    """

    def __init__(self, holder: int):
        self.holder = holder
        self.next = 1  # the number that is delivered next
        self.numbers: dict[Uid, int] = {}
        self.untold: list[tuple[int, Uid]] = []  # ordered here

    def learn(self, orders: Iterable[tuple[int, Uid]]) -> None:
        for number, uid in orders:
            known = self.numbers.setdefault(uid, number)
            assert known == number, f"invariant 1: {uid} has the numbers {known} and {number}"

    def is_next(self, uid: Uid) -> bool:
        return self.numbers.get(uid) == self.next

    def take(self, uid: Uid) -> int:
        """Delivered in order; the holder gives what has no number the next one."""
        number = self.numbers.get(uid)
        if number is None:
            number = self.numbers[uid] = self.next
            self.untold.append((number, uid))
        self.next = number + 1
        return number

    def tell(self) -> tuple[tuple[int, Uid], ...]:
        told, self.untold = tuple(self.untold), []
        return told

    def check(self) -> None:
        assert len({*self.numbers.values()}) == len(self.numbers), f"invariant 1: {self.numbers}"
        assert all(number < self.next for number, _ in self.untold), f"invariant 2: {self.untold}, next {self.next}"
