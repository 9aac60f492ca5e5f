"""Each row of the table in docs/jms.md, what Jakarta Messaging 3.1 has, and the tests that show it."""

import re
from pathlib import Path

import pytest

from mombroker import jms
from tests.jms.memory import Memory

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "jms.md"
CONTEXT, FEATURES, LIVE, MESSAGES = "test_context", "test_features", "test_live", "test_messages"
CONSUMERS, RECONNECTS = "test_consumers", "test_reconnects"
REQUESTS, TRANSACTIONS = "test_requests", "test_transactions"
ROWS = {
    "simplified API": [(CONTEXT, "test_what_a_producer_says_of_its_messages")],
    "classic API": [("test_rows", "test_what_is_not_here"), (LIVE, "test_requests_of_many_threads")],
    "queues, topics": [(CONSUMERS, "test_a_browser_shows_what_waits"), (CONSUMERS, "test_one_subscription_to_several")],
    "temporary queues": [(FEATURES, "test_a_temporary_queue_can_be_deleted"), (REQUESTS, "test_a_temporary_topic")],
    "receive, receiveNoWait": [("test_rows", "test_a_message_is_waited_for_or_not")],
    "TextMessage": [(CONTEXT, "test_every_kind_of_body"), (CONTEXT, "test_json")],
    "StreamMessage": [(FEATURES, "test_a_stream")],
    "ObjectMessage": [(MESSAGES, "test_what_no_body_can_be")],
    "getBody": [(MESSAGES, "test_a_body_is_what_it_was"), (MESSAGES, "test_a_body_that_is_not_what_the_message_says")],
    "JMSDestination": [(CONTEXT, "test_what_a_producer_says_of_its_messages"), (MESSAGES, "test_a_message_of_any")],
    "JMSRedelivered": [(RECONNECTS, "test_what_a_lost_connection_brought_comes_again")],
    "AUTO: after": [(LIVE, "test_a_server_killed_while_a_client_sends")],
    "AUTO, DUPS_OK": [(LIVE, "test_every_mode")],
    "Session.recover": [(CONTEXT, "test_recover_gives_back")],
    "commit, rollback": [
        (TRANSACTIONS, "test_a_transaction_sends_and_settles"),
        (TRANSACTIONS, "test_a_commit_that_is_refused"),
    ],
    "XA": [("test_rows", "test_what_is_not_here")],
    "durable, shared": [(CONSUMERS, "test_a_shared_subscription_has_takers"), (CONSUMERS, "test_no_local")],
    "Session.unsubscribe": [(CONSUMERS, "test_a_durable_subscription_goes_on_without_its_consumer")],
    "a durable subscription with": [("test_rows", "test_a_durable_subscription_is_changed")],
    "a second consumer": [(FEATURES, "test_a_second_consumer_of_a_durable_subscription_can_be_refused")],
    "a client id": [(LIVE, "test_a_client_id_for_one_connection_alone")],
    "JMSMessageID": [(FEATURES, "test_a_sender_knows_the_id_of_its_message")],
    "JMSDeliveryTime": [(FEATURES, "test_when_a_message_was_to_be_delivered")],
    "expired messages": [(FEATURES, "test_what_expires_while_it_waits_in_the_client")],
    "Connection.stop": [(FEATURES, "test_stop_and_start_are_those_of_the_connection")],
    "selectors": [(CONSUMERS, "test_a_selector_knows_types")],
    "priority, time": [(CONTEXT, "test_a_message_may_be_delayed_and_may_expire")],
    "asynchronous send": [
        (FEATURES, "test_a_function_is_called_when"),
        (FEATURES, "test_a_message_that_is_sent_can_be"),
    ],
    "MessageListener": [
        (LIVE, "test_requests_of_many_threads"),
        (CONSUMERS, "test_what_the_server_refuses_is_an_error"),
    ],
    "QueueRequestor": [(REQUESTS, "test_a_request_gets_its_own_answer")],
    "JMSXDeliveryCount": [(FEATURES, "test_properties_of_the_provider")],
    "JMSXUserID": [(FEATURES, "test_who_has_sent_a_message")],
    "JMSXAppID": [(FEATURES, "test_properties_that_only_the_provider_sets")],
    "disabling": [("test_rows", "test_ids_and_timestamps_are_always_there")],
    "InvalidDestinationException": [(CONSUMERS, "test_subscriptions_that_cannot_be"), (LIVE, "test_who_is_not_let_in")],
    "JNDI": [("test_url", "test_one_server"), ("test_rows", "test_what_is_not_here")],
    "ConnectionConsumer": [("test_rows", "test_what_is_not_here")],
    "message properties": [(MESSAGES, "test_properties_keep_their_types")],
    "beyond it": [("test_aio", "test_every_mode_settles"), ("test_questions", "test_an_agent_is_asked_and_answers")],
}


@pytest.fixture
def broker():
    return Memory()


def test_each_row_has_a_test():
    table = PAGE.read_text().partition("| feature | here |\n|---|---|\n")[2]
    rows = re.findall(r"^\| (.+?) \|", table.partition("\n\n")[0], re.M)
    assert len(rows) == len(ROWS)
    for row, (begins, shown) in zip(rows, ROWS.items(), strict=True):
        assert row.startswith(begins), (row, begins)
        for file, name in shown:
            assert re.search(rf"^def {name}", (HERE / f"{file}.py").read_text(), re.M), (row, file, name)


def test_what_is_not_here():
    for name in (
        "ConnectionFactory",
        "Session",
        "MessageProducer",
        "XAContext",
        "ConnectionConsumer",
        "InitialContext",
    ):
        assert not hasattr(jms, name)


def test_a_message_is_waited_for_or_not(broker):
    context = broker.connect()
    consumer = context.consumer("orders")
    assert consumer.receive(0) is None and consumer.receive(0.001) is None
    context.send("orders", "one")
    assert consumer.receive().body == "one"
    with pytest.raises(jms.IllegalState, match="timeout"):
        consumer.receive(-1)


def test_a_durable_subscription_is_changed(broker):
    """By whoever comes with another selector or topic."""
    context = broker.connect(client_id="c")
    context.consumer(jms.Topic("news"), durable="inbox").close()
    context.send("/topic/news", "old")
    consumer = context.consumer([jms.Topic("news"), jms.Topic("more")], durable="inbox", selector="n > 1")
    for number in (1, 2):
        context.send("/topic/more", str(number), properties={"n": number})
    assert consumer.receive(0).body == "2" and consumer.receive(0) is None


def test_ids_and_timestamps_are_always_there(broker):
    context = broker.connect()
    for unknown in ("disable_message_id", "disable_timestamp"):
        with pytest.raises(jms.MessageFormat, match=unknown):
            context.send("orders", "x", **{unknown: True})
    context.send("orders", "x")
    message = context.consumer("orders").receive(0)
    assert message.id and message.timestamp
