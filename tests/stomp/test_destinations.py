"""What clients of several brokers write, and what it means here."""

import pytest

from mombroker.broker.destinations import DestinationError, is_temporary, one, several, temporary


@pytest.mark.parametrize("shown, name", [
    ("/queue/orders", "queue:orders"), ("/topic/news", "topic:news"), ("orders", "queue:orders"),
    ("jms.queue.orders", "queue:orders"), ("jms.topic.news", "topic:news"), ("queue://orders", "queue:orders"),
    ("topic://news", "topic:news"), ("/amq/queue/orders", "queue:orders"), ("/exchange/amq.topic/a.b", "topic:a.b"),
    ("/exchange/amq.fanout", "topic:amq.fanout"), ("/exchange/amq.fanout/x", "topic:amq.fanout.x"),
    ("/queue/a/b c", "queue:a/b c"), ("/queue/grün", "queue:grün"), ("/queue/C#", "queue:C#"), ("a.b", "queue:a.b"),
    ("/remote-temp-queue/s1/1-2/x", "temp-queue:s1/1-2/x"), ("/reply-queue/s1/1-2/x", "temp-queue:s1/1-2/x"),
    ("/remote-temp-topic/s1/1-2/x", "temp-topic:s1/1-2/x"),
])  # fmt: skip
def test_every_dialect_has_a_name_here(shown, name):
    assert one(shown) == name
    assert several(shown) == (name,)


@pytest.mark.parametrize("shown", [
    "", "/", "/queue/", "/topic/", "/exchange/direct/x", "/Queue/a", "/queue/a\nb", "/queue/a\0", "/queue/ a",
    "/queue/a\t",
    "/queue/" + "x" * 201, "jms.queue.", "/foo/bar", "/exchange/amq.topic/", "/temp-queue/a", "/dsub/x",
])  # fmt: skip
def test_a_malformed_destination_is_a_fault(shown):
    for resolve in (one, several):
        with pytest.raises(DestinationError):
            resolve(shown)


def test_a_subscription_has_several_topics_or_one_queue():
    assert several("/topic/a,/topic/b , topic://a") == ("topic:a", "topic:b")
    assert several("/queue/a,queue://a") == ("queue:a",)
    for shown in ("/queue/a,/queue/b", "/topic/a,/queue/a", "/topic/a,", ",", "/topic/a,,/topic/b"):
        with pytest.raises(DestinationError):
            several(shown)


@pytest.mark.parametrize("shown", ["/topic/a.*", "/topic/*.b", "/topic/a.>", "/topic/#", "/topic/a.*.#", "/topic/>"])
def test_a_subscription_may_have_wildcards(shown):
    assert several(shown) == ("topic:" + shown[7:],)
    with pytest.raises(DestinationError, match="wildcard"):
        one(shown)


@pytest.mark.parametrize("shown", ["/queue/a.*", "orders.>", "/topic/a.#.b", "/topic/>.a"])
def test_wildcards_are_for_topics_and_the_rest_comes_last(shown):
    with pytest.raises(DestinationError):
        several(shown)


@pytest.mark.parametrize("name", ["pri*", "*ces", "a.p*s.b", "a>", "news.#x", "a.**", "a.>>", "ok.*,/topic/b*"])
def test_a_wildcard_within_a_word_would_bring_nothing(name):
    shown = f"/topic/{name}"
    with pytest.raises(DestinationError, match="has a wildcard within a word"):
        several(shown)
    assert several(shown, stored=True)  # from before


def test_a_queue_may_be_called_so_as_what_is_named_by_others_may():
    assert several("/queue/DLQ.my*sub") == ("queue:DLQ.my*sub",)


def test_a_message_goes_to_one_destination():
    for shown in ("/queue/a,/queue/b", "a,b", "/topic/a,b"):
        with pytest.raises(DestinationError):
            one(shown)


def test_a_temporary_destination_belongs_to_its_session():
    assert is_temporary("/temp-queue/x") and is_temporary("/temp-topic/x") and not is_temporary("/queue/temp-queue/")
    assert temporary("/temp-queue/x", "s1/5-7") == ("temp-queue:s1/5-7/x", "/remote-temp-queue/s1/5-7/x")
    assert temporary("/temp-topic/x", "s1/5-7") == ("temp-topic:s1/5-7/x", "/remote-temp-topic/s1/5-7/x")
    name, public = temporary("/temp-queue/x", "s1/5-7")
    assert one(public) == name
    with pytest.raises(DestinationError):
        temporary("/temp-queue/", "s1/5-7")
