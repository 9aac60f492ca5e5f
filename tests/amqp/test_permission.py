"""What a user may not do is refused in the words of AMQP, and what else its connection does goes on."""

import pytest

from mombroker.amqp import performatives
from mombroker.amqp.messages import PROPERTIES, VALUE
from tests.amqp.peer import message
from tests.amqp.wired import Wired, sections
from tests.broker.access.test_guard import Guarded
from tests.broker.bench import THREE

ACCEPTED, REJECTED = performatives.ACCEPTED, performatives.REJECTED
DENIED = "amqp:unauthorized-access"


@pytest.fixture
def b():
    """`user` may all with queue `mine`, and nothing else."""
    made = Guarded(THREE)
    made.allow("user", "queue:mine", "send", "receive", "create", "browse")
    return made


def works(client):
    """It still sends and receives what it may."""
    before = len(client.outcomes), len(client.got)
    client.sender("mine", 8).receiver("mine", 9).send(message(b"x"), handle=8)
    assert client.outcomes[before[0] :] == [(client.ids - 1, client.ids - 1, ACCEPTED)]
    assert len(client.got) == before[1] + 1 and not client.connection.closed
    return True


def test_what_it_may_not_send_is_rejected_one_by_one_and_the_link_stays(b):
    client = Wired(b).sender("theirs").send(message(b"one"), message(b"two"))
    assert [(first, last, code) for first, last, code in client.outcomes] == [(0, 0, REJECTED), (1, 1, REJECTED)]
    assert client.why == [(DENIED, "access refused: user 'user' may not send to queue:theirs")] * 2
    assert client.detached == [] and works(client)
    b.allow("user", "queue:theirs", "send", "create")
    client.send(message(b"three"))
    assert client.outcomes[-1] == (client.ids - 1, client.ids - 1, ACCEPTED)


def test_of_the_anonymous_relay_each_message_is_judged_by_where_it_goes(b):
    client = Wired(b).sender(None)
    client.send(*(sections((PROPERTIES, [None, None, to]), (VALUE, "x")) for to in ("mine", "theirs", "mine")))
    assert sorted(client.outcomes) == [(0, 0, ACCEPTED), (1, 1, REJECTED), (2, 2, ACCEPTED)]
    assert client.why == [(DENIED, "access refused: user 'user' may not send to queue:theirs")]


@pytest.mark.parametrize("more", [{}, {"mode": "copy"}, {"capabilities": ["topic"]}])
def test_a_link_to_receive_what_it_may_not_is_refused_and_the_session_stays(b, more):
    client = Wired(b).receiver("theirs", 1, **more)
    ((handle, condition, text),) = client.detached
    assert (handle, condition) == (1, DENIED) and text.startswith("access refused: user 'user' may not ")
    assert works(client)


def test_what_it_may_send_to_but_not_create_is_denied_where_there_is_none_yet(b):
    b.allow("user", "queue:new", "send", "receive")
    client = Wired(b).sender("new").send(message(b"x"))
    assert client.outcomes == [(0, 0, REJECTED)]
    assert client.why == [(DENIED, "access refused: user 'user' may not create queue:new")] and works(client)


def test_a_permission_that_is_taken_away_ends_the_link_alone(b):
    b.allow("user", "queue:news", "receive", "create")
    client = Wired(b).receiver("news", 1)
    assert client.detached == []
    b.allow("user", "queue:news", "create")
    client.hear()
    ((handle, condition, _),) = client.detached
    assert (handle, condition) == (1, DENIED) and works(client)
