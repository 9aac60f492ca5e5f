"""Context: a connection and a session in one, as in the simplified API of Jakarta Messaging."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mombroker.jms import checks, questions
from mombroker.jms.connection import Connection
from mombroker.jms.consumer import Browser, Consumer, Listener, Wanted
from mombroker.jms.destinations import Agent, Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from mombroker.jms.errors import ConnectionLost, IllegalState, InvalidDestination, MessageFormat, Refused, RolledBack
from mombroker.jms.listeners import Listeners
from mombroker.jms.machine import AGAIN, FAIL, Call, Part
from mombroker.jms.messages import Message
from mombroker.jms.producer import Pending, Producer
from mombroker.jms.requestor import Requestor

AUTO, DUPS_OK, CLIENT, INDIVIDUAL, TRANSACTED = MODES = ("auto", "dups-ok", "client", "individual", "transacted")
REQUEST_S = 30.0  # for the answer to a request
TRANSACTION, TRANSACTION_BYTES = 10_000, 32 << 20  # of messages received and sent; servers refuse longer ones
TOO_LONG = f"a transaction has at most {TRANSACTION:,} messages and {TRANSACTION_BYTES >> 20} MiB: commit, or roll back"
TOO_MANY = (
    f"the open transactions of a connection have received at most {TRANSACTION:,} messages, and of topics "
    f"{TRANSACTION_BYTES >> 20} MiB: commit one of them, or roll it back"
)
CLOSE_S = 10.0  # for what is not answered yet
AGAIN_TEXT = "the connection that brought it was lost: it comes again"


def mode(ack: object) -> None:
    """Raises IllegalState for no acknowledge mode."""
    if not isinstance(ack, str) or ack not in MODES:
        raise IllegalState(f"ack is one of {', '.join(MODES)}, not {str(ack)[:40]!r}")


class Context:
    """Made by `connect`, or by `Context.context`, which shares the connection. It is for one thread at a time, but for
    `close`, `request` and listeners.

    ack     auto         a message is consumed when `receive` returns it, or the listener returns
            dups-ok      likewise, but told late: after a crash some may come again
            client       Message.acknowledge settles all that the context has received
            individual   Message.acknowledge and reject settle one message
            transacted   `commit` settles what was received and sends what was sent, together
    """

    def __init__(self, connection: Connection, ack: str = AUTO):
        mode(ack)
        self.connection, self.ack = connection, ack
        self.closed = False
        self.consumers: list[Consumer] = []
        self._unsettled: list[Message] = []  # received, to be settled by the program
        self._sends: list[Part] = []  # of the transaction, and their bytes
        self._sends_bytes = 0
        self._topic_bytes = 0  # of the bodies that plain topics have brought in it
        self._begun = ("", 0)  # its name, and of which connection, once something was received in it
        self._listeners: Listeners | None = None
        self._requestor: Requestor | None = None
        connection.contexts.append(self)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def context(self, ack: str = AUTO) -> Context:
        """Another context on the same connection."""
        self._check()
        return Context(self.connection, ack)

    # -- destinations ----------------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        return Queue(name)

    def topic(self, name: str) -> Topic:
        return Topic(name)

    def temporary_queue(self) -> TemporaryQueue:
        """A queue of this connection, gone with it; made again, empty, when the connection is. Any connection of this
        program can send to it. Raises TimedOut, ConnectionLost."""
        self._check()
        with self.connection.lock:
            made = TemporaryQueue(f"t{self.connection.number()}", self.connection)
            call = self.connection.machine.make_temporary(made)
            self.connection.flush()
        self.connection.wait(call)
        return made

    def temporary_topic(self) -> TemporaryTopic:
        self._check()
        return TemporaryTopic(f"t{self.connection.number()}", self.connection)

    # -- sending ---------------------------------------------------------------------------------------------------

    def producer(self, destination: Destination | str | None = None, **options: Any) -> Producer:
        """A producer with the Options `options` for its messages."""
        self._check()
        return Producer(self, destination, options)

    def send(self, to: Destination | str, body: Any = None, **options: Any) -> Pending:
        """Send one message; see Producer.send."""
        return Producer(self, to, {}).send(body, **options)

    def put(self, part: Part) -> bool:
        """Keep a message for the commit, if there will be one."""
        self._check()
        if self.ack != TRANSACTED:
            return False
        size = self.connection.machine.fits(part)
        if len(self._sends) + len(self._unsettled) >= TRANSACTION or self._sends_bytes + size > TRANSACTION_BYTES:
            raise IllegalState(TOO_LONG)
        self._sends.append(part)
        self._sends_bytes += size
        return True

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was sent on the connection is answered. Raises TimedOut, ConnectionLost."""
        self.connection.settle_all(checks.timeout(timeout))

    def request(
        self, to: Destination | str, body: Any = None, *, timeout: float = REQUEST_S, **options: Any
    ) -> Message:
        """Send a message and wait for its answer. Raises TimedOut, ConnectionLost, and what `send` does.

        Without a ttl of its own it expires with the timeout: nobody waits for an answer then.
        """
        self._check()
        checks.seconds("timeout", timeout)
        if self.ack == TRANSACTED:
            raise IllegalState("a transaction sends at its commit: use another context for requests")
        if self._requestor is None:
            self._requestor = Requestor(self)
        return self._requestor.request(to, body, timeout, options)

    def ask(self, agent: Destination | str, question: Any, *, timeout: float = REQUEST_S, **options: Any) -> Any:
        """Send an agent a notification, and wait for its answer: a notification, too, if this program has imported its
        class, else a Message. An agent that is named without a prefix is `/agent/NAME`.

        Raises Refused if the agent does not take it, or has failed; MessageFormat for what is no notification, and what
        `request` does.
        """
        where = agent if isinstance(agent, Destination) or agent.startswith("/") else Agent(agent)
        type, body = questions.written(question)
        kind = {"type": type, "content_type": questions.JSON}
        return questions.read(self.request(where, body, timeout=timeout, **kind, **options))

    def reply(self, message: Message, body: Any = None, **options: Any) -> Pending:
        """Answer a request. Raises InvalidDestination if it does not say where to."""
        if not isinstance(message, Message):
            raise MessageFormat(f"a reply is to a Message that was received, not to {type(message).__name__}")
        where = message.reply_to
        if where is None:
            raise InvalidDestination("this message asks for no answer: it has no reply_to")
        return self.send(where, body, **{"correlation_id": message.correlation_id or message.id, **options})

    # -- receiving -------------------------------------------------------------------------------------------------

    def consumer(self, wanted: Wanted, *, listener: Listener | None = None, **options: Any) -> Consumer:
        """Take from a queue, a topic, or a list of topics, which is one subscription with one order.

        selector        a condition, as "size > 5 AND color = 'red'"
        durable=NAME    goes on while nobody is there; needs a client_id, or shared=True, for several at once
        shared=NAME     several take turns; it ends with the last of them
        no_local        not what this connection sends
        prefetch        messages that may be here and not settled, default 100
        exclusive, priority   who gets a queue's messages, if several want them
        take_over=False       refused, if the durable subscription has a consumer; else that one has to go
        """
        self._check()
        return Consumer(self, wanted, listener, **options)

    def browser(self, queue: Destination | str, selector: str = "") -> Browser:
        self._check()
        return Browser(self, queue, selector)

    def unsubscribe(self, durable: str) -> None:
        """End a durable subscription, with all that waits for it. Raises Refused."""
        self._check()
        checks.name("durable", durable)
        connection = self.connection
        connection.wait(connection.ask([Part("UNSUBSCRIBE", {"durable-subscription-name": durable})]))

    def start(self) -> None:
        self._check()
        self.connection.start()

    def stop(self) -> None:
        """No context of this connection hands out anything until `start`; returns when no listener runs, unless it is a
        listener that says so."""
        self._check()
        self.connection.stop()

    # -- settling --------------------------------------------------------------------------------------------------

    def acknowledge(self, wait: bool = False) -> None:
        """Settle all that was received. Raises ConnectionLost if some of it was brought by a lost connection."""
        self._only(CLIENT, INDIVIDUAL)
        checks.flag("wait", wait)
        with self.connection.lock:
            messages, self._unsettled = self._unsettled, []
            self._acknowledge(messages, wait)

    def acknowledge_one(self, message: Message, wait: bool) -> None:
        checks.flag("wait", wait)
        if self.ack == CLIENT:
            self.acknowledge(wait)
        elif self.ack == INDIVIDUAL:
            with self.connection.lock:
                if message in self._unsettled:
                    self._unsettled.remove(message)
                    self._acknowledge([message], wait)

    def _acknowledge(self, messages: list[Message], wait: bool) -> None:
        self._check()
        alive = [message for message in messages if message.ack and not self._lost(message)]
        if wait and alive:
            parts = [Part("ACK", {"id": message.ack}) for message in alive]
            self.connection.wait(self.connection.ask(parts, FAIL))
        else:
            for message in alive:
                self.tell("ACK", message)
        if lost := sum(map(self._lost, messages)):
            raise ConnectionLost(AGAIN_TEXT if lost == 1 else f"{lost} messages were brought by a lost connection")

    def reject(self, message: Message, requeue: bool | None = None) -> None:
        self._only(INDIVIDUAL)
        if requeue is not None:
            checks.flag("requeue", requeue)
        with self.connection.lock:
            if message in self._unsettled:
                self._unsettled.remove(message)
                self.tell("NACK", message, **({} if requeue is None else {"requeue": str(requeue).lower()}))

    def recover(self) -> None:
        """Give back all that was received and is not acknowledged: it comes again, as the queue's policy says."""
        if self.ack == TRANSACTED:
            raise IllegalState("a transacted context has rollback()")
        with self.connection.lock:
            self._check()
            self._return()

    def commit(self, timeout: float | None = None) -> None:
        """Settle all that was received, and send all that was sent, since the last commit: all of it or nothing.

        Raises RolledBack: nothing of it, and what was received comes again. TimedOut: it may still happen.
        """
        self._only(TRANSACTED)
        timeout = checks.timeout(timeout)
        with self.connection.lock:
            self._check()
            self._check_commit()
            messages, self._unsettled = self._unsettled, []
            sends, self._sends = self._sends, []
            self._sends_bytes = self._topic_bytes = 0
            if any(map(self._lost, messages)):
                self._abort()
                self.give_back(messages, [])
                raise RolledBack("a connection was lost that had brought messages of this transaction: they come again")
            settles = any(message.ack for message in messages)
            if not settles and not sends:
                return
            name = {"transaction": self._begun[0] if settles else f"t{self.connection.number()}"}
            inner = [Part(part.command, {**part.headers, **name}, part.body) for part in sends]
            parts = [*([] if settles else [Part("BEGIN", name)]), *inner, Part("COMMIT", name)]
            call = self.connection.ask(parts, FAIL if settles else AGAIN, timeout)
            self._begun = ("", 0)
        try:
            self.connection.wait(call, timeout)
        except (Refused, ConnectionLost) as error:
            raise RolledBack(str(error)) from None

    def rollback(self) -> None:
        """Forget what was sent, and give back what was received, since the last commit."""
        self._only(TRANSACTED)
        with self.connection.lock:
            self._check()
            self._sends.clear()
            self._sends_bytes = 0
            self._return()

    @contextmanager
    def transaction(self) -> Iterator[Context]:
        """Commit at the end of the block; roll back if it raises."""
        self._only(TRANSACTED)
        try:
            yield self
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def _return(self) -> None:
        """What was received has failed; what waits behind it has not been seen."""
        received, self._unsettled = self._unsettled, []
        self._topic_bytes = 0
        self._abort()
        self.give_back(received, [each for consumer in self.consumers for each in consumer.clear()] if received else [])

    def _abort(self) -> None:
        name, epoch = self._begun
        if name:
            self.connection.tell("ABORT", {"transaction": name}, epoch)
        self._begun = ("", 0)

    def give_back(self, failed: list[Message], unseen: list[Message]) -> None:
        for message in failed:
            self.tell("NACK", message)
        for message in unseen:
            self.tell("NACK", message, unseen="true")

    def check_room(self, topic_bytes: int) -> None:
        """Raises IllegalState for a transaction that a server would refuse with one message more, and so many bytes of
        it from plain topics."""
        if self.ack != TRANSACTED:
            return
        if len(self._unsettled) + len(self._sends) >= TRANSACTION:
            raise IllegalState(TOO_LONG)
        begun = self._all_begun()
        if self not in begun and len(begun) >= (most := self.connection.machine.taken.transactions):
            raise IllegalState(f"a connection has at most {most} open transactions: commit one, or connect again")
        received, of_topics = (sum(len(each._unsettled) for each in begun), sum(each._topic_bytes for each in begun))
        if received >= TRANSACTION or of_topics + topic_bytes > TRANSACTION_BYTES:
            raise IllegalState(TOO_MANY)

    def _check_commit(self) -> None:
        begun = self._all_begun()
        if sum(len(each._unsettled) for each in begun) + len(self._sends) > TRANSACTION:
            raise IllegalState(TOO_MANY)
        if self not in begun and len(begun) >= (most := self.connection.machine.taken.transactions):
            raise IllegalState(f"a connection has at most {most} open transactions: commit another first")

    def _all_begun(self) -> list[Context]:
        """Those of the connection that have an open transaction on the server."""
        epoch = self.connection.machine.epoch
        return [each for each in self.connection.contexts if each._begun[0] and each._begun[1] == epoch]

    def unsettled_of(self) -> set[str | Destination]:
        """From where it has messages that are to be settled, as that is written to the server."""
        return {message.consumer.destination for message in self._unsettled if message.consumer is not None}

    def received(self, message: Message, consumer: Consumer) -> None:
        """It was handed out."""
        if self.ack in (AUTO, DUPS_OK):
            consumer.settle(message)
            return
        self._unsettled.append(message)
        if self.ack == TRANSACTED and message.ack:
            self._topic_bytes += 0 if consumer.kept else len(message.raw)
            self._settle(message)

    def _settle(self, message: Message) -> None:
        """Settle it in the transaction: that lets more come, however many those are."""
        name, epoch = self._begun
        if not name or epoch != message.epoch:
            name = f"t{self.connection.number()}"
            self._begun = (name, message.epoch)
            self.connection.tell("BEGIN", {"transaction": name}, message.epoch)
        self.tell("ACK", message, transaction=name)

    def failed(self, message: Message, consumer: Consumer) -> None:
        """A listener has raised."""
        if self.ack in (AUTO, DUPS_OK):
            consumer.acknowledge_lazily()
            self.tell("NACK", message)
        elif self.ack == INDIVIDUAL:
            self.reject(message)
        elif self.ack == TRANSACTED:
            self.rollback()

    def tell(self, command: str, message: Message, **headers: str) -> None:
        if message.ack:
            self.connection.tell(command, {"id": message.ack, **headers}, message.epoch)

    def _lost(self, message: Message) -> bool:
        return bool(message.ack) and message.epoch != self.connection.machine.epoch

    # -- listeners, and the end --------------------------------------------------------------------------------------

    def listen(self) -> None:
        if self._listeners is None:
            self._listeners = Listeners(self)
        self.connection.lock.notify_all()

    def call_when_done(self, call: Call, function: Callable[[], object]) -> None:
        """Under the lock."""
        self.listen()
        assert self._listeners is not None
        give = self._listeners.await_call()
        if call.done:
            give(function)
        else:
            call.then += (lambda: give(function),)

    def is_listener(self) -> bool:
        """Whether this is the thread of its listeners."""
        return self._listeners is not None and threading.current_thread() is self._listeners.thread

    def await_listener(self, consumer: Consumer | None = None) -> None:
        """Wait until no listener runs, or that of this consumer does not."""
        if self._listeners is not None:
            self._listeners.wait(consumer)

    def close(self) -> None:
        """Close its consumers, roll back what is not committed, and, if it is the last context, the connection.

        Threads that wait in `receive` get None. Raises TimedOut if what was sent is still not answered.
        """
        connection = self.connection
        with connection.lock:
            if self.closed:
                return
            self.closed = True
            connection.contexts.remove(self)
            last = not connection.contexts
            connection.lock.notify_all()
            self.await_listener()
            for consumer in list(self.consumers):
                consumer.acknowledge_lazily()
                if last:  # the server takes all back by itself
                    consumer.closed = True
                else:
                    consumer.close()
            connection.lock.notify_all()
            if not last:
                if self._requestor is not None:
                    self._requestor.close()
                self._return()
        if last:
            connection.close(CLOSE_S)
        if self._listeners is not None and not self.is_listener():
            self._listeners.thread.join(CLOSE_S)

    def _check(self) -> None:
        if self.closed:
            raise IllegalState("this context is closed")

    def _only(self, *modes: str) -> None:
        self._check()
        if self.ack not in modes:
            raise IllegalState(f"this context has ack={self.ack!r}: that is for {' and '.join(modes)}")
