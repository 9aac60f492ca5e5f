"""Request and reply: a service answers on a queue of its own, each asker gets the answer to its own question.

python -m examples.price_service [URL]
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from mombroker.jms import Context, Message, connect

PRICES = {"margherita": 7.5, "marinara": 6.0, "quattro stagioni": 9.5}


def serve(service: Context) -> None:
    """Answer questions, one after another, in the context's own thread."""

    def answer(question: Message) -> None:
        service.reply(question, json={"pizza": question.body, "price": PRICES.get(question.body)})

    service.consumer("prices", listener=answer)


def main(url: str) -> None:
    with connect(url) as service, connect(url) as asker, ThreadPoolExecutor() as threads:
        serve(service)
        names = [*PRICES, "hawaii"]
        for answer in threads.map(lambda name: asker.request("prices", name, timeout=30).body, names):
            price = answer["price"]
            print(f"{answer['pizza']}: {'not ours' if price is None else f'{price:.2f}'}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["stomp://localhost:61613"]))
