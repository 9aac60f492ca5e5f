"""A queue of jobs for several workers: what fails is tried again, later; what fails too often is a dead letter.

How often, and how much later, is the policy of the queue in examples/clients.toml.

    python -m examples.work_queue [URL]
"""

import sys
import threading

from mombroker.jms import Message, connect

JOBS, DEAD, FILE = "jobs", "DLQ.jobs", "examples/clients.toml"


class Workshop:
    """`done` has what was done, and at which attempt."""

    def __init__(self, count: int):
        self.left = threading.Semaphore(0)
        self.count = count
        self.done: dict[str, int] = {}

    def work(self, job: Message) -> None:
        """One job; it is taken from the queue when it is done."""
        if job.properties["fails"] >= job.delivery_count:
            print(f"{job.body} failed at attempt {job.delivery_count}")
            job.reject()
            return
        self.done[job.body] = job.delivery_count
        print(f"{job.body} is done")
        job.acknowledge()
        self.left.release()

    def wait(self) -> None:
        for _ in range(self.count):
            if not self.left.acquire(timeout=30):
                raise SystemExit(f"a job is missing: does somebody else take from {JOBS}?")


def main(url: str) -> dict[str, int]:
    shop = Workshop(count=5)
    with connect(url) as boss, connect(url, ack="individual") as ann, connect(url, ack="individual") as bob:
        for worker in (ann, bob):
            worker.consumer(JOBS, prefetch=1, listener=shop.work)
        for number in range(4):
            boss.send(JOBS, f"job {number}", properties={"fails": 0})
        boss.send(JOBS, "a hard job", properties={"fails": 1})
        boss.send(JOBS, "a job that nobody can do", properties={"fails": 100})
        shop.wait()
        letter = boss.consumer(DEAD).receive(timeout=30)
        if letter is None:  # by the policy that all queues have, it is tried for a minute
            raise SystemExit(f"there is no dead letter yet: run a server with the policy of {JOBS}, that of {FILE}")
        print(f"{letter.body} is a dead letter: {letter.properties['dead-letter-reason']}")
        return shop.done


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["stomp://localhost:61613"]))
