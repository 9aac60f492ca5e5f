import re
from dataclasses import MISSING, fields, replace
from pathlib import Path

import pytest

from mombroker.core.errors import SENTENCE_CHARS, DeclaredLost, MomError, PeerError, PeerRefused
from mombroker.core.hello import Hello, hello_of
from mombroker.net import handshake, wire
from mombroker.net.handshake import PEER, Busy, Told, dialer, listener, refusal

A, B = bytes(range(16)), bytes(range(16, 32))
WRONG = [
    None, True, -1, 1 << 63, (1 << 64) - 1, 1.5, "", "x\x1b[2J\n", "a" * 3_000, b"", b"\xff" * 16, b"x" * 3_000, [],
    [[]], ["refused", "busy", ["\x1b[2J"] * 99], {}, {"a": 1},
]  # fmt: skip


def hello(server, **changed):
    made = Hello(server, "i", "d", "x", 4, "g", revision=5, term=6, sent=3, acked=2, received=1, limit=9)
    return replace(made, **changed)


def ends(
    role="peer", name="a", wanted="b", keys=(b"k", b"k"), refuse=None, accept=None, greeting=None, nonces=(A, B), me="b"
):
    """Both generators, and what each end admitted."""
    admitted = []

    def admit(hello):
        if refuse == hello.server:
            raise PeerRefused(f"{hello.server} is wiped")
        admitted.append(hello)

    one = dialer(name, wanted, role, keys[0], nonces[0], lambda peer: greeting or hello(name), admit)
    two = listener(me, nonces[1], lambda role, peer: keys[1], accept or (lambda peer: None), lambda p: hello(me), admit)
    return one, two, admitted


def run(one, two, tamper=lambda frame: frame):
    """Pass frames to and fro until both are done. Returns what each came to: a Login or its error."""
    results = [None, None]
    boxes = [[None], [None]]  # frames for each; None starts a generator
    sides = [one, two]
    while any(boxes[at] and results[at] is None for at in (0, 1)):
        for at in (0, 1):
            if results[at] is None and boxes[at]:
                frame = boxes[at].pop(0)
                try:
                    out = sides[at].send(frame)
                except StopIteration as stop:
                    results[at], out = stop.value, stop.value.last
                except MomError as error:
                    results[at], out = error, [] if isinstance(error, Told) else [refusal(error)]
                boxes[1 - at] += [wire.decode(wire.encode(tamper(each))[4:]) for each in out]
    return results


def test_two_servers_exchange_their_hellos():
    one, two, admitted = ends()
    first, second = run(one, two)
    assert (first.role, first.peer, first.hello) == ("peer", "b", hello("b"))
    assert (second.role, second.peer, second.hello) == ("peer", "a", hello("a"))
    assert admitted == [hello("b"), hello("a")]


def test_an_operator_has_no_hello():
    one, two, admitted = ends(role="admin", name="mom", keys=(b"token", b"token"))
    first, second = run(one, two)
    assert (first.role, first.peer, first.hello) == ("admin", "b", None)
    assert (second.role, second.peer, second.hello) == ("admin", "mom", None)
    assert admitted == []


def test_a_wrong_secret_is_refused_by_the_listener_and_told_to_the_dialer():
    first, second = run(*ends(keys=(b"k", b"other"))[:2])
    assert isinstance(second, PeerRefused) and "a and b have different secrets; `secret_file` must" in str(second)
    assert isinstance(first, Told) and str(first).startswith("b refuses: a and b have different secrets")


def test_a_wrong_token_names_the_data_folder():
    first, second = run(*ends(role="admin", name="mom", keys=(b"k", b"other"))[:2])
    assert "read it from the data folder of b" in str(first)


def test_a_listener_that_does_not_know_the_secret_is_refused_by_the_dialer():
    one, _, admitted = ends()
    (first,) = one.send(None)
    assert first[0] == "mom"
    (proof,) = one.send(["mom", handshake.VERSION, "b", B])
    with pytest.raises(PeerRefused, match="different secrets"):
        one.send(["proof", bytes(32), {"server": "b"}])
    with pytest.raises(PeerRefused, match="different secrets"):  # nor is the dialer's own proof good for it
        again = ends()[0]
        again.send(None)
        again.send(["mom", handshake.VERSION, "b", B])
        again.send(["proof", proof[1], {"server": "b"}])
    assert admitted == []


def test_a_proof_is_good_for_one_connection_only():
    """A recorded login, played again to the same listener, meets another nonce."""
    recorded = []
    run(*ends()[:2], tamper=lambda frame: recorded.append(frame) or frame)
    sent_by_dialer = [recorded[0], recorded[2]]
    _, two, _ = ends(nonces=(A, bytes(16)))
    two.send(None)
    two.send(sent_by_dialer[0])
    with pytest.raises(PeerRefused, match="different secrets"):
        two.send(sent_by_dialer[1])


def test_the_names_are_part_of_the_proof():
    """A server cannot pass the proof of another one on as its own, nor as that of an operator."""
    for change in ({3: "c"}, {2: "admin"}):

        def tamper(frame, change=change):
            return [change.get(at, value) for at, value in enumerate(frame)] if len(frame) == 6 else frame

        first, second = run(*ends()[:2], tamper=tamper)
        assert isinstance(second, PeerRefused) and isinstance(first, Told)


def test_nothing_that_travels_holds_the_secret():
    sent = []
    run(*ends(keys=(b"very secret", b"very secret"))[:2], tamper=lambda frame: sent.append(frame) or frame)
    assert len(sent) == 6
    assert b"very secret" not in b"".join(map(wire.encode, sent))


def test_another_version_is_refused_whatever_else_it_says():
    _, two, _ = ends()
    two.send(None)
    with pytest.raises(
        PeerRefused, match="the dialer speaks version 9 of the link protocol, b speaks 2; upgrade the o"
    ):
        two.send(["mom", 9, {"something": "new"}])


# What a and b said to each other in version 1, as it was on the wire.
DIALER_1 = bytes.fromhex("0000002196a36d6f6d01a470656572a161a162c410000102030405060708090a0b0c0d0e0f")
LISTENER_1 = bytes.fromhex("0000001a94a36d6f6d01a162c410101112131415161718191a1b1c1d1e1f")
HELLO_1 = bytes.fromhex("0000001892a568656c6c6f99a161a169a164a3782f30a16703020109")
REFUSAL_1 = (
    b"\0\0\0[\x93\xa7refused\xa0\xd9Othe dialer speaks version 2 of the link protocol, we speak 1; upgrade the older"
)


def heard(data):
    (frame,) = wire.Decoder().feed(data)
    return frame


def test_a_dialer_of_version_1_is_refused_in_words_that_it_can_read():
    _, two, admitted = ends()
    two.send(None)
    with pytest.raises(PeerRefused) as caught:
        two.send(heard(DIALER_1))
    sentence = "the dialer speaks version 1 of the link protocol, b speaks 2; upgrade the older"
    assert str(caught.value) == sentence and admitted == []
    frame = heard(wire.encode(refusal(caught.value)))  # version 1 takes three values, tells one line, and closes
    assert frame == ["refused", "", sentence]


def test_a_listener_of_version_1_refuses_us_in_words_that_we_can_read():
    """It reads no more than the first two values of our first frame."""
    one, _, _ = ends()
    (first,) = one.send(None)
    assert heard(wire.encode(first))[:2] == ["mom", 2] and len(wire.encode(first)) < wire.LOGIN_LIMIT
    with pytest.raises(Told, match="^b refuses: the dialer speaks version 2 of the link protocol, we speak 1; upgrade"):
        one.send(heard(REFUSAL_1))
    one, _, _ = ends()
    one.send(None)
    with pytest.raises(PeerRefused, match="^b speaks version 1 of the link protocol, a speaks 2; upgrade the older$"):
        one.send(heard(LISTENER_1))


def test_a_hello_of_version_1_is_out_of_shape():
    _, two, admitted = ends()
    hellos = []
    run(ends()[0], two, tamper=lambda frame: hellos.append(frame) or (heard(HELLO_1) if frame[0] == "hello" else frame))
    assert [frame[0] for frame in hellos][-1] == "refused" and admitted == []


def test_unknown_fields_of_a_hello_are_ignored():
    """So that a later version may have more to say, in either direction."""

    def tamper(frame):
        if type(frame[-1]) is dict:
            frame[-1].update({"standby": [1, {"of": None}], "": -1, b"server": "z", "x" * 500: True})
        return frame

    one, two, admitted = ends()
    first, second = run(one, two, tamper)
    assert (first.hello, second.hello) == (hello("b"), hello("a")) and len(admitted) == 2


LATER = [each.name for each in fields(Hello) if each.default is not MISSING]


@pytest.mark.parametrize("name", LATER)
def test_fields_that_came_later_may_be_missing(name):
    whole = hello("a").values()
    assert hello_of({key: value for key, value in whole.items() if key != name}, "a") == hello("a")


@pytest.mark.parametrize("name", [each.name for each in fields(Hello)])
def test_each_known_field_of_a_hello_must_be_there_and_of_its_kind(name):
    whole = hello("a").values()
    assert hello_of(whole, "a") == hello("a")
    if name not in LATER:
        with pytest.raises(PeerError, match=f"^the hello of a lacks the field {name}$"):
            hello_of({key: value for key, value in whole.items() if key != name}, "a")
    for wrong in WRONG:
        if type(wrong) is not type(whole[name]):
            with pytest.raises(PeerError, match=f"^the hello of a has a wrong value in field {name}$"):
                hello_of(whole | {name: wrong}, "a")
        elif type(wrong) is int and not 0 <= wrong < 1 << 63:
            with pytest.raises(PeerError, match=f"^the hello of a has a number out of range in field {name}$"):
                hello_of(whole | {name: wrong}, "a")
        elif name == "server":
            with pytest.raises(PeerError, match="^the hello of a names "):
                hello_of(whole | {name: wrong}, "a")
        else:
            assert getattr(hello_of(whole | {name: wrong}, "a"), name) == wrong


def test_the_table_of_a_hello_s_fields_in_the_documents_is_whole():
    text = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text()
    table = text.partition("### 0.5 ")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", table, re.M)
    assert re.findall(r"`(\w+)`", " ".join(rows)) == [each.name for each in fields(Hello)]


def test_the_wrong_server_at_an_address_is_named():
    first, second = run(*ends(me="c")[:2])
    assert str(second) == "this is c, not b; compare `listen` of both in the topology file"
    assert "this is c, not b" in str(first)


def test_a_refused_hello_is_told_to_the_other_end():
    first, second = run(*ends(refuse="b")[:2])  # the dialer refuses the listener
    assert str(first) == "b is wiped" and str(second) == "a refuses: b is wiped"
    first, second = run(*ends(refuse="a")[:2])
    assert str(second) == "a is wiped" and str(first) == "b refuses: a is wiped"


def test_busy_is_told_apart():
    def accept(peer):
        raise Busy("later")

    first, second = run(*ends(accept=accept)[:2])
    assert isinstance(second, Busy) and isinstance(first, Told) and first.busy


def test_who_is_lost_is_told_so_after_the_proofs_only():
    said = refusal(DeclaredLost("a"), "a")
    assert said[:2] == ["refused", "lost"] and refusal(DeclaredLost("a"), "b")[1] == ""

    def answers(kind):
        return lambda frame: said if frame[0] == kind else frame

    greet, admit = (lambda peer: hello("b")), (lambda hello: None)
    for kind, counts in (("mom", False), ("proof", False), ("hello", True)):
        side = listener("b", bytes(16), lambda role, peer: b"key", lambda peer: None, greet, admit)
        dials = dialer("a", "b", PEER, b"key", bytes(16), lambda peer: hello("a"), admit)
        told = run(dials, side, answers(kind))
        assert [each.lost for each in told if isinstance(each, Told)][-1] is counts, kind


def test_nobody_is_accepted_before_the_proof():
    asked = []
    run(*ends(keys=(b"k", b"other"), accept=asked.append)[:2])
    assert asked == []


@pytest.mark.parametrize(
    "frame",
    [
        None, 7, [], {}, "GET / HTTP/1.1", ["mom"], ["mom", "1"], ["mom", True, 1], ["mom", 2, "peer", "a", "b"],
        ["mom", 2, "peer", "a", "b", "text"], ["mom", 2, "peer", "a", "b", b"short"], ["mom", 2, "king", "a", "b", A],
        ["mom", 2, "peer", "a/b", "b", A], ["mom", 2, "peer", "a", "b", A, 1], ["refused"], ["refused", 1],
    ],
)  # fmt: skip
def test_a_first_frame_out_of_shape_is_the_peers_fault(frame):
    _, two, _ = ends()
    two.send(None)
    with pytest.raises(PeerError):
        two.send(frame)


@pytest.mark.parametrize("changed", [{"sent": -1}, {"sent": "1"}, {"limit": True}, {"server": "z"}, {"digest": b"x"}])
def test_a_hello_out_of_shape_is_the_peers_fault(changed):
    one, two, admitted = ends(greeting=hello(**{"server": "a", **changed}))
    _, second = run(one, two)
    assert isinstance(second, PeerError)
    assert admitted == [hello("b")]


def test_a_refusal_of_a_stranger_is_cut_and_cleaned_before_it_is_logged():
    one, _, _ = ends()
    one.send(None)
    with pytest.raises(Told) as caught:
        one.send(["refused", "", "line\nforged \x1b[31m" + "x" * 5000])
    assert len(str(caught.value)) < 700 and str(caught.value).isprintable()


@pytest.mark.parametrize("role", ["peer", "admin"])
@pytest.mark.parametrize("number", range(6))
def test_any_wrong_value_in_a_login_is_refused_in_one_bounded_line(role, number):
    for at in range(len(fields(Hello))):
        for wrong in WRONG:
            seen = []

            def tamper(frame, at=at, wrong=wrong, seen=seen):
                seen.append(frame)
                if len(seen) == number + 1 and at < len(frame) + len(fields(Hello)):
                    inner = frame[-1] if type(frame[-1]) is dict else frame
                    inner[[*inner][at % len(inner)] if inner is not frame else at % len(inner)] = wrong
                return frame

            for result in run(*ends(role=role)[:2], tamper):
                if isinstance(result, MomError):
                    assert isinstance(result, PeerError | PeerRefused)
                    assert str(result).isprintable() and len(str(result)) <= SENTENCE_CHARS


def test_whoever_wants_to_join_shows_the_secret_of_the_bus_to_anybody():
    one, two, admitted = ends(role="join", name="new", wanted="")
    ours, its = run(one, two)
    assert (ours.role, ours.peer, its.role, its.peer, admitted) == ("join", "b", "join", "new", [])
    refused, _ = run(*ends(role="join", name="new", wanted="", keys=(b"k", b"other"))[:2])
    assert isinstance(refused, PeerRefused) and "new and b have different secrets" in str(refused)
    for role in ("peer", "admin"):
        refused, _ = run(*ends(role=role, wanted="")[:2])
        assert isinstance(refused, MomError)
