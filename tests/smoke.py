"""A smoke of a compiled build: a server of it is sent messages, is killed, starts again, and has what nobody took.

`make smoke` runs this by the Python of an environment that has the build.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mombroker import jms
from mombroker.admin.demo import free_ports
from mombroker.broker.queue import queue
from mombroker.jms.errors import ConnectionLost
from mombroker.stomp import frames

COUNT, PATIENCE_S = 2_000, 60
SMOKE = "/queue/smoke"


def main() -> None:
    for module in (frames, queue):
        assert module.__file__.endswith(".so"), f"{module.__name__} is not compiled: {module.__file__}"
    with tempfile.TemporaryDirectory(prefix="mom-smoke-") as folder:
        port, listen = free_ports(2)
        command = [str(Path(sys.executable).with_name("mom")), "run", "--stomp", f"127.0.0.1:{port}", "--amqp", "none"]
        command += ["--http", "none", "--listen", f"127.0.0.1:{listen}"]
        with running(command, folder) as server:
            with connected(port) as context:
                producer = context.producer(SMOKE)
                for number in range(COUNT):
                    producer.send(f"{number}", wait=False)
                context.flush()
                assert taken(context, COUNT // 2) == list(range(COUNT // 2)), "not what was sent"
            server.kill()
        with running(command, folder) as server:
            with connected(port) as context:
                assert taken(context, COUNT // 2) == list(range(COUNT // 2, COUNT)), "not what was left"
                assert context.consumer(SMOKE).receive(0) is None, "more than was sent"
        assert server.returncode == 0, f"it ends with {server.returncode}"


def taken(context: jms.Context, count: int) -> list[int]:
    consumer = context.consumer(SMOKE)
    found = [consumer.receive(PATIENCE_S) for _ in range(count)]
    consumer.close()
    return [int(message.body) for message in found if message is not None]


def connected(port: int) -> jms.Context:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return jms.connect(f"stomp://127.0.0.1:{port}", reconnect=0)
        except ConnectionLost:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


@contextmanager
def running(command: list[str], folder: str) -> Iterator["subprocess.Popen[bytes]"]:
    server = subprocess.Popen(command, cwd=folder)
    try:
        yield server
        server.terminate()
        server.wait(PATIENCE_S)
    finally:
        server.kill()


if __name__ == "__main__":
    main()
