"""The client of asyncio, in one loop, with a server of its own process."""

import asyncio
import subprocess
import sys
import threading

import pytest

from mombroker import jms
from mombroker.jms import aio
from tests.admin.processes import Processes, free_ports

PATIENCE_S = 60  # before a test gives up; nothing is measured by it


def within(work):
    """What a coroutine returns; it has left no task and no thread behind."""

    async def alone():
        before = threading.active_count()
        result = await asyncio.wait_for(work, PATIENCE_S)
        assert len(asyncio.all_tasks()) <= 2, asyncio.all_tasks()  # this one, and perhaps the last turn of a transport
        names = [each.name for each in threading.enumerate()]
        names = [name for name in names if not name.startswith("asyncio_")]  # the loop's own, for names of machines
        assert len(names) <= before and "mombroker-jms" not in names, names
        return result

    return asyncio.run(alone())


async def taken(consumer, count):
    return [(await consumer.receive(PATIENCE_S)).body for _ in range(count)]


def test_what_is_sent_is_received_and_browsed(url, place):
    async def work():
        async with await aio.connect(url) as context:
            sent = await context.send(place, "one", properties={"n": 1})
            producer = context.producer(place, priority=4)
            later = [await producer.send(str(number), wait=False) for number in range(1_000)]
            await context.flush()
            assert sent.done and all(each.done and each.error is None for each in later)
            seen = [message.body async for message in context.browser(place)]
            async with await context.consumer(place) as consumer:
                first = await consumer.receive(PATIENCE_S)
                assert (first.id, first.body, first.properties["n"]) == (sent.id, "one", 1)
                assert seen == ["one", *await taken(consumer, 1_000)]
                assert await consumer.receive(0) is None and await consumer.receive(0.01) is None

    within(work())


def test_tasks_wait_for_themselves_alone(url, place):
    async def work():
        async with await aio.connect(url) as context:
            worker = context.context()
            consumer = await worker.consumer(place)

            async def answers():
                async for message in consumer:
                    await worker.reply(message, message.body * 2)

            answering = asyncio.create_task(answers())
            asked = [context.request(place, str(number), timeout=PATIENCE_S) for number in range(100)]
            assert [each.body for each in await asyncio.gather(*asked)] == [str(number) * 2 for number in range(100)]
            await consumer.close()  # which ends the iteration
            await answering

    within(work())


def test_a_message_of_a_large_body_leaves_as_the_socket_takes_it(url, place):
    async def work():
        async with await aio.connect(url) as context:
            body = bytes(range(256)) * 16_384
            for each in [await context.send(place, body, wait=False) for _ in range(6)]:
                await each
            consumer = await context.consumer(place)
            assert await taken(consumer, 6) == [body] * 6

    within(work())


def test_a_cancelled_call_leaves_the_client_as_it_was(url, place):
    async def work():
        async with await aio.connect(url) as context:
            consumer = await context.consumer(place)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.receive(), 0.01)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(context.request("nobody-answers", "x"), 0.05)
            await context.send(place, "x")
            assert await taken(consumer, 1) == ["x"]

    within(work())


def test_every_mode_settles(url, place):
    async def work():
        async with await aio.connect(url, ack="transacted") as context, context.context("individual") as other:
            with pytest.raises(ZeroDivisionError):
                async with context.transaction():
                    await context.send(place, "lost")
                    raise ZeroDivisionError
            async with context.transaction():
                await context.send(place, "one")
                await context.send(place, "two")
            consumer = await other.consumer(place)
            one = await consumer.receive(PATIENCE_S)
            await other.acknowledge(one)
            other.reject(await consumer.receive(PATIENCE_S), requeue=False)
            dead = await other.consumer(f"DLQ.{place}")
            assert (one.body, await taken(dead, 1)) == ("one", ["two"])
            await other.acknowledge()
            with pytest.raises(jms.IllegalState, match="iterate over it in a task of its own"):
                await other.consumer(place, listener=print)

    within(work())


def test_durable_subscriptions_and_temporary_destinations(url):
    async def work():
        async with await aio.connect(url, client_id="aio") as context:
            inbox = await context.consumer(jms.Topic("aio"), durable="inbox")
            assert inbox.unconfirmed == []
            await context.send(jms.Topic("aio"), "news")
            assert await taken(inbox, 1) == ["news"]
            await inbox.close()
            await context.unsubscribe("inbox")
            queue, topic = await context.temporary_queue(), context.temporary_topic()
            await context.send(queue, "mine")
            consumer = await context.consumer(queue)
            context.stop()
            assert await consumer.receive(0.01) is None
            context.start()
            assert await taken(consumer, 1) == ["mine"]
            await consumer.close()
            await context.delete(queue)
            await context.delete(topic)
            with pytest.raises(jms.InvalidDestination, match="was deleted"):
                await context.send(queue, "x")

    within(work())


def test_what_waits_is_awaited(url, place):
    async def work():
        async with await aio.connect(url, ack="individual") as context:
            await context.send(place, "x")
            message = await (await context.consumer(place)).receive(PATIENCE_S)
            with pytest.raises(jms.IllegalState, match="await it"):
                message.acknowledge(wait=True)

    within(work())


def test_a_server_that_is_not_there_is_told():
    (port,) = free_ports(1)

    async def work():
        with pytest.raises(jms.ConnectionLost, match="no server can be reached"):
            await aio.connect(f"stomp://127.0.0.1:{port}")

    within(work())


def test_a_killed_server_is_only_slow(tmp_path):
    link, stomp = free_ports(2)
    file = tmp_path / "bus.toml"
    file.write_text(
        f'[bus]\nname = "solo"\n[servers.a]\nlisten = "127.0.0.1:{link}"\ndata = "a"\n'
        f'stomp = "127.0.0.1:{stomp}"\nanonymous = true\n'
    )
    processes = Processes(file)

    async def work():
        serving = processes.serve("a")
        context = await connected(f"stomp://127.0.0.1:{stomp}")
        consumer = await context.consumer("q")
        for number in range(200):
            await context.send("q", str(number), wait=False)
            if number in (50, 120):
                serving.kill()
                serving.wait()
                serving = processes.serve("a")
        got = []
        while len(set(got)) < 200:
            message = await consumer.receive(PATIENCE_S)
            assert message.body not in got or message.redelivered
            got.append(message.body)
        await context.close()
        serving.kill()
        serving.wait()
        return list(dict.fromkeys(got))

    assert within(work()) == [str(number) for number in range(200)]


async def connected(address):
    """To a server that is about to listen."""
    while True:
        try:
            return await aio.connect(address)
        except jms.ConnectionLost:
            await asyncio.sleep(0.05)


def test_the_client_of_threads_needs_no_greenlet():
    code = "import sys, mombroker.jms; print('greenlet' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
