"""Headers of a SEND become fields of a message, and a MESSAGE has the very lines that were sent."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mombroker.broker import older
from mombroker.broker.commands import Delivery
from mombroker.broker.message import BROKERS_OWN, ClientMessage, row_of
from mombroker.broker.properties import BIT63, FIELDS, pack, unpack
from mombroker.broker.selectors import lookup
from mombroker.broker.wire import pack as packed
from mombroker.stomp import headers as rules
from mombroker.stomp import replies
from mombroker.stomp.headers import SAID, V10, V11, V12, block_for, block_of, head_of, text_of
from mombroker.stomp.requests import CONTROL

TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12)
NUMBERS = st.sampled_from([
    "0", "7", "007", "+7", "-0", "-7", "5.0", "2.50", ".5", "1e5", "1e+16", "1e400", "9" * 19, "9" * 20, "nan", "inf",
    "true", "TRUE", " false", "1_0", "٣", "", "YQ==", "YR==", "x",
])  # fmt: skip
TYPES = st.lists(
    st.tuples(st.sampled_from([*FIELDS, *"abc"]), st.sampled_from(["int", "float", "bool", "bytes", "null", "char"]))
).map(lambda pairs: ",".join(f"{name}={kind}" for name, kind in pairs))
NAMES = st.sampled_from([*FIELDS, *"abcdef", "JMSXGroupID", "a:b", "a\nb"]) | TEXT.filter(
    lambda name: name and name not in CONTROL
)
HEADERS = st.tuples(
    st.dictionaries(NAMES, TEXT | NUMBERS, max_size=8), st.none() | TYPES, st.randoms(use_true_random=False)
).map(lambda made: mixed(*made))


def mixed(headers, types, chance):
    pairs = [*headers.items(), *([("property-types", types)] if types is not None else [])]
    chance.shuffle(pairs)
    return dict(pairs)


def message(headers, typed=False):
    return ClientMessage("queue:q", "/queue/q", **head_of(headers, typed)._asdict())


@given(HEADERS, st.booleans())
@example({"a": "007"}, True)
@example({"a": "5", "property-types": "a=int"}, False)
@example({"property-types": "a=int", "a": "5"}, False)
@example({"a": "x", "reply-to": "", "correlation-id": "c"}, False)
def test_what_comes_out_is_what_went_in(headers, typed):
    put = message(headers, typed)
    rules._made = rules.Memo()  # what a server makes that has never seen the SEND
    there = ClientMessage.unpack(put.pack())
    for version in (V10, V11, V12):
        assert text_of(there, version) == block_for(block_of(headers.items()), version)
    for name, field in FIELDS.items():
        assert getattr(put, field) == headers.get(name, "")
    assert put.typed == typed
    assert there.size == put.size <= len(block_of(headers.items())) + 16 * len(headers) + 8  # nothing is there twice


def said(put, version=V12, **more):
    """The lines of a MESSAGE, as pairs."""
    made = replies.message(Delivery("s", 1, "a#1", put, **more), "a#1/5.1", version, True, {})
    head = made.removeprefix(b"MESSAGE\n").partition(b"\n\n")[0].decode()
    return [tuple(line.split(":", 1)) for line in head.split("\n")]


def test_what_a_message_says_by_itself_is_on_one_list():
    """So that no property hides it: most clients take the first header of a name, some the last."""
    names = set()
    for kind in ("text", "bytes", "map"):
        put = ClientMessage("queue:q", "/queue/q", 9, 1, kind=kind, persistent=False, body=b"\0")
        put.annotations = dict.fromkeys(BROKERS_OWN, "x")  # told or not, they are nobody else's
        names |= {name for name, _ in said(put, count=2, expires=1_000_000, ack="client", due=1_000_000)}
    assert names == SAID and names <= CONTROL


@pytest.mark.parametrize("version", [V10, V11, V12])
def test_no_property_of_a_sender_has_the_name_of_what_the_broker_says(version):
    """STOMP lets none in; another protocol may have such, and so may what a server of before has stored."""
    forged = dict.fromkeys(SAID, "forged") | {"mine": 5, "ack": 7, "type": "forged"}
    put = ClientMessage("queue:q", "/queue/q", type="t", properties=pack(forged), annotations={"late": "yes"})
    for form in (b"", rules.LINES + b"mine:5\nack:7\nsubscription:forged\ntype:t\nproperty-types:ack=int,mine=int\n"):
        put.form = form
        pairs = said(put, version, count=2)
        assert len(pairs) == len(dict(pairs)) and "forged" not in dict(pairs).values()
        assert {"mine": "5", "type": "t", "property-types": "mine=int", "subscription": "s"}.items() <= dict(
            pairs
        ).items()
        assert BROKERS_OWN.isdisjoint(dict(pairs))


def test_what_the_broker_adds_comes_instead_of_a_property_of_that_name():
    """Of a dead letter that somebody has sent again as it was, and that dies again."""
    sent = {"dead-letter-reason": "mine", "a": "1", "property-types": "dead-letter-reason=char,dead-letter-count=int"}
    put = message(sent)
    put.annotations = {"dead-letter-reason": "rejected", "dead-letter-count": "3"}
    pairs = said(put)
    assert len(pairs) == len(dict(pairs))
    assert dict(pairs)["dead-letter-reason"] == "rejected" and "property-types" not in dict(pairs)
    put.annotations = {}
    assert sent.items() <= dict(said(put)).items(), "what was made for the one is not kept for the other"


def test_as_a_rule_the_fields_tell_all():
    for said, typed in (
        ({"content-type": "t", "type": "u", "correlation-id": "1", "reply-to": "/queue/a", "x": "1", "y": ""}, False),
        ({"x": "5", "y": "true", "z": "2.5", "s": "007x"}, True),
        ({"type": "u", "size": "5", "s": "x", "new": "true", "property-types": "size=int,new=bool"}, False),
    ):
        assert message(said, typed).form == b""
    assert message({"x": "1", "type": "u", "y": "2", "reply-to": "/queue/a"}).form == b"@\1\3"
    assert message({"x": "007", "y": "7", "z": "TRUE"}, True).form == b"%" + packed([[], {0: "007", 2: "TRUE"}, None])
    assert message({"property-types": "x=int", "x": "7"}).form == b"%" + packed([[0], {}, None])
    assert message({"property-types": "x=uint", "x": "7"}, True).form == b"%" + packed([[0], {}, "x=uint"])


def test_one_number_written_otherwise_costs_no_large_header_twice():
    for odd in ("007", "1.50", "1e3", "TRUE", "+5"):
        assert message({"trace": "x" * 10_000, "n": odd}, True).size < 10_050


def test_values_have_their_types():
    typed = message({"a": "5", "b": "007", "c": "TRUE", "d": "1.50", "e": "x", "f": "9" * 19}, True)
    assert unpack(typed.properties) == {"a": 5, "b": 7, "c": True, "d": 1.5, "e": "x", "f": float("9" * 19)}
    said = message(
        {"a": "5", "b": "5", "c": str(BIT63), "d": "YQ==", "e": "", "property-types": "a=int,c=int,d=bytes,e=null"}
    )
    assert unpack(said.properties) == {"a": 5, "b": "5", "c": str(BIT63), "d": b"a", "e": None}


def test_a_message_of_no_stomp_client_tells_its_types():
    put = ClientMessage("queue:q", "q", type="t", properties=pack({"a": 5, "s": "x", "b": b"a", "n": None, "f": 2.0}))
    lines = "type:t\na:5\ns:x\nb:YQ==\nn:\nf:2.0\nproperty-types:a=int,b=bytes,n=null,f=float\n"
    assert text_of(put, V12) == lines.encode()
    assert head_of(dict(line.split(":", 1) for line in lines.splitlines()), False).properties == put.properties


@pytest.mark.parametrize("form", [
    b"=", b"=x", b"=x:1\n\n", b"=\nx:1\n", b"=x:1\0\n", b"=\xff:1\n", b"=x:1\ny\n", b"@", b"@\1\1", b"@\xff", b"?",
    b"=:1\n", b"=x:\r\n", b"%", b"%\xc1", b"%\x91" * 2_000, b"%" + packed({}), b"%" + packed([[], {}]),
    b"%" + packed([[0, 0, 0], {}, None]), b"%" + packed([[-1], {}, None]), b"%" + packed([[0], {0: b"x"}, None]),
    b"%" + packed([[0], {9: "x", -1: "x"}, None]), b"%" + packed([[0], {}, 7]), b"%\x93\x91\x00\x81\x00\xa1\xff\xc0",
])  # fmt: skip
def test_a_form_that_no_server_has_made_is_passed_over(form):
    """It would break the frame of a client, who has not sent it."""
    put = ClientMessage("queue:q", "q", type="t", properties=pack({"a": "1"}), form=form)
    assert sorted(text_of(put, V12).splitlines()) == [b"a:1", b"type:t"]


def test_the_lines_of_equal_messages_are_made_once_and_those_that_are_remembered_are_few(monkeypatch):
    made = []
    monkeypatch.setattr(rules, "_made", rules.Memo())
    monkeypatch.setattr(rules, "_block", lambda *head, block=rules._block: made.append(head) or block(*head))
    put = message({"a": "1", "type": "t"})
    assert [text_of(put, version) for version in (V12, V11, V12)] == [b"a:1\ntype:t\n"] * 3 and not made
    for number in range(3 * rules.Memo.MOST):
        message({"a": f"{number}"})
    assert text_of(put, V12) == text_of(put, V12) == b"a:1\ntype:t\n" and len(made) == 1
    large = message({"a": "x" * rules.Memo.BYTES})
    assert text_of(large, V12) == text_of(large, V12) and len(made) == 3
    assert len(rules._made.new) + len(rules._made.old) <= 2 * rules.Memo.MOST


def test_what_a_form_says_ends_no_line():
    form = b"%" + packed([[0, 1], {0: "1\nb:2"}, "x\n\nbody"])
    put = ClientMessage("queue:q", "q", type="t", properties=pack({"a": "1"}), form=form)
    assert text_of(put, V12) == b"type:t\nproperty-types:x\\n\\nbody\na:1\\nb\\c2\n"


@given(HEADERS, st.booleans(), st.binary(max_size=9))
def test_an_old_message_counts_what_it_counted_however_often_it_is_written(headers, typed, body):
    block = block_of(headers.items())
    row = ["queue:q", "/queue/q", block, 4, 0, 0, 0, True, "bytes", "", 0, "", 0, "", "", typed, {}]
    old = ClientMessage.of_row(row, body)
    again = ClientMessage.of_row(list(row_of(ClientMessage.unpack(old.pack()))), body)
    assert old.size == again.size == again.copy().size == len(block) + len(body)
    assert text_of(again, V12) == block and again == old
    assert old.form == (older.LINES + block if block else b"")


@pytest.mark.parametrize("typed", [False, True])
def test_what_selectors_see_of_types_that_they_do_not_know_and_of_fields(typed):
    """docs/stomp.md, SEND."""
    types = "b=bytes,n=null,m=null,correlation-id=int,type=int,dead-letter-count=float,property-types=char"
    said = {"b": "YQ==", "n": "", "m": "x", "correlation-id": "5", "type": "7", "property-types": types}
    put = message(said, typed)
    put.annotations["dead-letter-count"] = "3"
    get = lookup(put)
    for name in ("b", "n", "property-types"):
        assert get(name) is None
    for name, text in (("m", "x"), ("correlation-id", "5"), ("JMSCorrelationID", "5"), ("JMSType", "7")):
        assert get(name) == text
    assert get("dead-letter-count") == (3 if typed else "3")
