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


@pytest.mark.parametrize("passcode", ["p@ss:w/rd#", "w/rd", "p#ss", "12#4", "12/4", "a?b", "p,ss", "1,2", "%ff"])
def test_signs_in_a_passcode_that_must_be_written_otherwise(passcode):
    with pytest.raises(InvalidUrl, match="write @ as %40") as refused:
        parse(f"stomp://other:1,stomp://ann:{passcode}@host:61613")
    assert f"'{passcode}'" not in str(refused.value)


@pytest.mark.parametrize("wrong", [
    7, None, b"stomp://a", ["stomp://a", 7], "stomp://a\udce9", "stomp://" + "a" * 64, "stomp://a:0", "stomp://a#b",
    "stomp://ann:a%0Ab@host", "stomp://ann%00:x@host", {"stomp://a": 1}.values(),
])  # fmt: skip
def test_what_no_connection_can_be_made_with(wrong):
    with pytest.raises(InvalidUrl):
        parse(wrong)


def test_no_passcode_is_shown():
    (url,) = parse("stomps://ann:secret@host")
    assert str(url) == "stomps://host:61614" and "secret" not in repr(url)
    with pytest.raises(InvalidUrl) as refused:
        parse("stomp://ann:secret@host/x")
    assert "secret" not in str(refused.value)
