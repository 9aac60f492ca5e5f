"""What one HTTP connection may cost, and what it is told."""

import pytest

from mombroker.gateway.web import connection, port
from mombroker.gateway.web.connection import ANSWER_S, BODY_BYTES, HEAD_BYTES, HEADERS_MOST, IDLE_S
from mombroker.gateway.web.http import Answer
from tests.gateway.web.world import WebWorld, basic, request


@pytest.fixture
def world():
    return WebWorld()


def idle(world):
    world.clock.advance(0)
    return not world.clock.getDelayedCalls()


def test_one_connection_serves_many_requests(world):
    visitor = world.visit()
    for _ in range(3):
        status, headers, body = visitor.ask("/healthz")
        assert (status, body) == (200, "works\n")
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    visitor.lose()
    assert idle(world) and len(world.web._all) == 0


def test_a_request_may_come_byte_by_byte(world):
    visitor = world.visit()
    for byte in request():
        visitor.receive(bytes([byte]))
    assert visitor.answer()[2] == "works\n"


def test_requests_that_come_together_are_answered_in_turn_while_nothing_more_is_read(world):
    visitor = world.visit()
    visitor.receive(request("/healthz") + request("/readyz") + request("/nothing"))
    assert not visitor.reading
    data = visitor.all()
    assert [data.find(word) for word in (b"works", b"takes work", b"there is no '/nothing'")] == sorted(
        data.find(word) for word in (b"works", b"takes work", b"there is no '/nothing'")
    )
    assert data.count(b"HTTP/1.1 200") == 2 and visitor.reading


def test_the_answer_to_HEAD_has_no_body(world):
    status, headers, body = world.visit().ask("/healthz", "HEAD")
    assert (status, headers["content-length"], body) == (200, "6", "")


def test_http_1_0_and_close_end_after_the_answer(world):
    for data in (b"GET /healthz HTTP/1.0\r\n\r\n", request(Connection="close")):
        visitor = world.visit()
        visitor.receive(data)
        assert visitor.answer()[0] == 200
        assert visitor.ending
        visitor.lose()
    assert idle(world)


BAD = [
    (b"\x16\x03\x01\x02\x00\x01\x00", 400),  # the begin of TLS
    (b"HELLO\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\n\r\n", 400),  # no Host
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", 400),
    (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
]


@pytest.mark.parametrize(("data", "status"), BAD)
def test_what_is_no_request_is_told_so_and_ends_the_connection(world, data, status):
    visitor = world.visit()
    visitor.receive(data)
    assert visitor.answer()[0] == status and visitor.ending
    visitor.lose()
    assert idle(world)


def test_a_head_that_is_too_long_is_refused_before_it_is_kept(world):
    visitor = world.visit()
    visitor.receive(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
    visitor.receive(b"x" * HEAD_BYTES)
    assert visitor.answer()[0] == 431 and visitor.ending


@pytest.mark.parametrize("whole", [True, False])
def test_a_head_of_very_many_headers_is_refused_before_it_is_taken_apart(world, whole):
    """A read of them takes ten times as long as one request, for each connection of a stranger."""
    lines = b"a:\r\n" * (HEADERS_MOST - 1)
    assert world.visit().ask("/healthz", Host="x\r\n" + lines.decode().removesuffix("\r\n"))[0] == 200
    visitor = world.visit()
    visitor.receive(b"GET /healthz HTTP/1.1\r\nHost: a\r\na: b\r\n" + lines + b"\r\n" * whole)
    assert visitor.answer()[0] == 431 and visitor.ending
    many = world.visit()
    many.receive(request() * HEADERS_MOST)
    answers = many.all()  # of as many requests, which are one behind the other
    assert answers.count(b"HTTP/1.1 200 ") > 1 and answers.count(b"HTTP/1.1 ") == answers.count(b"HTTP/1.1 200 ")


def test_a_body_of_chunks_is_refused_at_its_head(world):
    """They may be of one byte each."""
    visitor = world.visit()
    visitor.receive(request("/api/purge", "POST", Transfer_Encoding="chunked") + b"1\r\na\r\n" * 1_000)
    assert visitor.answer()[0] == 411 and visitor.ending
    visitor.lose()
    assert idle(world)


def test_a_body_is_kept_of_what_changes_something_alone_and_one_too_large_is_refused_at_its_head(world):
    visitor = world.visit()
    visitor.receive(request(Content_Length=str(BODY_BYTES)))
    for _ in range(BODY_BYTES // 1024):
        assert visitor.all() == b""
        visitor.receive(b"x" * 1024)
        assert len(visitor.protocol._http._receive_buffer) == len(visitor.protocol._body) == 0
    assert visitor.answer()[0] == 200
    visitor.receive(request(Content_Length=str(BODY_BYTES + 1)))
    assert visitor.answer()[0] == 413 and visitor.ending


def test_who_waits_with_a_body_until_it_is_wanted_is_told_to_go_on(world):
    visitor = world.visit()
    visitor.receive(request("/healthz", Content_Length="2", Expect="100-continue"))
    assert visitor.all() == b"HTTP/1.1 100 \r\n\r\n"
    visitor.receive(b"{}")
    assert visitor.answer()[0] == 200
    visitor.receive(request("/healthz", Content_Length=str(BODY_BYTES + 1), Expect="100-continue"))
    assert visitor.answer()[0] == 413


def test_a_method_that_would_change_something_is_refused(world):
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        status, headers, body = world.visit().ask("/metrics", method, Content_Length="0")
        assert (status, headers["allow"]) == (405, "GET, HEAD") and method in body
    assert world.asked == []


def test_who_sends_a_request_slowly_is_cut_off_in_time(world):
    """One byte a second would last for hours."""
    visitor = world.visit()
    for byte in request()[:10]:
        visitor.receive(bytes([byte]))
        world.clock.advance(1)
    world.clock.advance(0.1)
    assert visitor.answer()[0] == 408 and visitor.ending
    world.clock.advance(2.1)
    assert not visitor.connected and idle(world)


def test_who_says_nothing_goes_before_a_request_and_between_two(world):
    silent, other = world.visit(), world.visit()
    other.ask()
    world.clock.advance(10.1)
    assert silent.ending and silent.buffer == b"" and not other.ending
    world.clock.advance(IDLE_S)
    assert other.ending


def test_who_does_not_read_the_answer_is_cut_off(world):
    world.web._pages["/big"] = lambda request, user: big()
    visitor = world.visit()
    visitor.receive(request("/big"))
    assert len(visitor.buffer) <= connection.WRITE_BYTES  # the rest waits as it is
    world.clock.advance(ANSWER_S + 0.1)
    assert not visitor.connected and idle(world)


def test_a_large_answer_goes_in_pieces(world):
    world.web._pages["/big"] = lambda request, user: big()
    status, headers, body = world.visit().ask("/big")
    assert len(body) == 1_000_000


def big():
    yield from ()
    return Answer(200, b"x" * 1_000_000)


def test_who_waits_for_a_server_that_does_not_answer_goes_in_time(world):
    world.silent = True
    visitor = world.visit()
    visitor.receive(request("/metrics"))
    world.clock.advance(0)
    assert world.asked == [("status", {})]
    world.clock.advance(ANSWER_S + 0.1)
    assert not visitor.connected and idle(world)


def test_a_crowd_pushes_out_its_own(world, monkeypatch):
    monkeypatch.setattr(port, "MAX_VISITORS", 5)
    near, crowd = world.visit(), [world.visit("10.0.0.9") for _ in range(20)]
    assert near.connected and [each.connected for each in crowd] == [False] * 16 + [True] * 4
    assert len(world.lines) == 1 and "the oldest of 10.0.0.9 go" in world.lines[0]


def test_what_a_server_refuses_is_told(world):
    world.replies["status"] = lambda: "it is not to be had"
    assert world.visit().ask("/metrics")[::2] == (400, "it is not to be had\n")


def test_a_server_that_takes_no_work_is_not_ready_but_works(world):
    world.reason = "a is stopping"
    assert world.visit().ask("/readyz")[::2] == (503, "a is stopping\n")
    assert world.visit().ask("/healthz")[0] == 200


# -- who may ask -----------------------------------------------------------------------------------------------------


def refused(world):
    world.check_all()
    return world.asked == []


def test_who_needs_no_user_in_STOMP_needs_none_here_and_others_do(world):
    world.silent = True
    world.visit().receive(request("/metrics"))
    world.clock.advance(0)
    assert world.asked == [("status", {})]
    status, headers, body = world.visit("10.0.0.9").ask("/metrics")
    assert status == 401 and headers["www-authenticate"] == 'Basic realm="mombroker s1", charset="UTF-8"'
    assert "mom user add" in body and len(world.asked) == 1


def test_a_user_logs_in_by_the_passcode_of_STOMP():
    world = WebWorld(anonymous=False)
    world.silent = True
    visitor = world.visit()
    visitor.receive(request("/metrics", Authorization=basic("ann", "a")))
    world.check_all()
    world.clock.advance(0)
    assert world.asked == [("status", {})]
    world.visit().receive(request("/metrics", Authorization=basic("ann", "a")))  # known now
    world.clock.advance(0)
    assert len(world.asked) == 2 and not world.checks


@pytest.mark.parametrize("login", [basic("ann", "b"), basic("bob", "a"), basic("ann", "")])
def test_a_wrong_passcode_is_refused_and_counted(login):
    world = WebWorld(anonymous=False)
    visitor = world.visit()
    visitor.receive(request("/metrics", Authorization=login))
    world.check_all()
    assert visitor.answer()[0] == 401 and world.asked == [] and world.gateway.refusals == 1


@pytest.mark.parametrize("login", ["", "Basic", "Basic !!!!", "Basic YQ==", "Bearer x", "Basic /////w=="])
def test_what_is_no_login_is_answered_by_the_question_for_one(login):
    world = WebWorld(anonymous=False)
    assert world.visit().ask("/metrics", Authorization=login)[0] == 401
    assert world.asked == world.checks == []


def test_a_known_user_of_an_anonymous_server_shows_the_passcode(world):
    visitor = world.visit()
    visitor.receive(request("/metrics", Authorization=basic("ann", "b")))
    world.check_all()
    assert visitor.answer()[0] == 401 and world.asked == []


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8161", "127.0.0.1.evil.example", "[::1", ""])
def test_a_page_whose_name_leads_to_this_machine_gets_nothing_without_a_user(world, host):
    """DNS rebinding: the browser asks us in the name of evil.example."""
    assert world.visit().ask("/metrics", host=host)[0] == 421
    assert world.asked == []


@pytest.mark.parametrize("host", ["localhost", "localhost:8161", "127.0.0.1", "[::1]:8161", "LOCALHOST"])
def test_this_machine_has_several_names(world, host):
    world.silent = True
    world.visit().receive(request("/metrics", host=host))
    world.clock.advance(0)
    assert world.asked == [("status", {})]


def test_who_goes_during_the_check_of_the_passcode_is_not_answered():
    world = WebWorld(anonymous=False)
    visitor = world.visit()
    visitor.receive(request("/metrics", Authorization=basic("ann", "a")))
    visitor.lose()
    world.check_all()
    assert idle(world)
