"""Orders on one topic, answers on another: whoever reads both sees each order before its answer, and nobody in the
middle sorts them.

    python -m examples.order_desk [URL]
"""

import sys

from mombroker.jms import Message, Topic, connect

ORDERS, ANSWERS = Topic("desk.orders"), Topic("desk.answers")


def run(url: str, count: int = 20) -> list[str]:
    """What the auditor reads while a customer orders `count` things."""
    with connect(url) as customer, connect(url) as desk, connect(url) as auditor:

        def answer(order: Message) -> None:
            desk.send(ANSWERS, f"confirmed: {order.body}")

        book = auditor.consumer([ORDERS, ANSWERS], prefetch=1)
        desk.consumer(ORDERS, listener=answer)
        for number in range(count):
            customer.send(ORDERS, f"pizza {number}", wait=False)
        lines = []
        while len(lines) < 2 * count:
            message = book.receive(timeout=30)
            assert message is not None, "a message is missing"
            lines.append(message.body)
        return lines


def main(url: str) -> None:
    seen = set()
    for line in run(url):
        print(line)
        seen.add(line)
        assert line.removeprefix("confirmed: ") in seen, "an answer before its order"
    print("every order came before its answer")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["stomp://localhost:61613"]))
