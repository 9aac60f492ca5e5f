import pytest

from mombroker.jms.errors import InvalidUrl
from mombroker.jms.url import Url, parse


def test_one_server():
    assert parse("stomp://host") == [Url("host", 61613)]
    assert parse("stomp://ann:p%40ss@host:5") == [Url("host", 5, user="ann", passcode="p@ss")]
    assert parse("stomps://[::1]") == [Url("::1", 61614, tls=True)]
    assert parse("stomps://h:1/?ca=my.pem") == [Url("h", 1, tls=True, ca="my.pem")]


@pytest.mark.parametrize("several", [
    "stomp://a:1,stomp://b:2", "failover:(stomp://a:1, stomp://b:2)", ["stomp://a:1", "stomp://b:2"],
])  # fmt: skip
def test_several_servers(several):
    assert parse(several) == [Url("a", 1), Url("b", 2)]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("", "no URL"),
        ("http://a", "write stomp://HOST:PORT"),
        ("stomp://", "write stomp://HOST:PORT"),
        ("stomp://a/queue", "write stomp://HOST:PORT"),
        ("stomp://a:x", "is no URL"),
        ("stomp://a:99999", "is no URL"),
        ("stomp://a?ca=x", "no option 'ca'"),
        ("stomps://a?co=x", "no option 'co'"),
    ],
)
def test_what_is_wrong_is_told(wrong, words):
    with pytest.raises(InvalidUrl, match=words):
        parse(wrong)


def test_no_passcode_is_shown():
    (url,) = parse("stomps://ann:secret@host")
    assert str(url) == "stomps://host:61614" and "secret" not in repr(url)
    with pytest.raises(InvalidUrl) as refused:
        parse("stomp://ann:secret@host/x")
    assert "secret" not in str(refused.value)
