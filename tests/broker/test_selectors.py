"""Selectors: Jakarta Messaging 3.1 §3.8.1 rule by rule, and against a slow evaluator that walks a tree."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.broker import properties, selectors
from mombroker.broker.message import BROKERS_OWN, ClientMessage
from mombroker.broker.properties import pack, unpack
from mombroker.broker.selectors import MAX_DEPTH, MAX_LENGTH, SelectorError, compile, lookup, number_of
from mombroker.broker.texts import to_headers
from mombroker.stomp.headers import head_of
from tests.broker.bench import Broker

MESSAGE = {
    "age": 17, "weight": 2.5, "zero": 0, "country": "UK", "phone": "12993", "under": "_foo", "quote": "it's",
    "yes": True, "no": False, "digits": "42", "truth": "TRUE", "$x_1": 1, "größe": 3, "long": "a" * 3000,
}  # fmt: skip


def value(text, message=MESSAGE):
    """True, False, or None for unknown."""
    return compile(text).evaluate(message.get)


@pytest.mark.parametrize("text, expected", [
    ("age = 17", True), ("age <> 17", False), ("age > 16.5", True), ("age >= 17", True), ("age < 17", False),
    ("age <= 17.0", True), ("17 = age", True), ("weight = 2.5", True), ("weight > 2", True), ("age = 17e0", True),
    ("country = 'UK'", True), ("country <> 'UK'", False), ("country = 'uk'", False), ("quote = 'it''s'", True),
    ("yes = TRUE", True), ("yes <> true", False), ("no = False", True), ("yes", True), ("no", False), ("TRUE", True),
    ("größe = 3", True), ("$x_1 = 1", True), ("age=17", True), ("age\t=\n17\f", True), ("'' = ''", True),
])  # fmt: skip
def test_comparisons(text, expected):
    assert value(text) is expected


@pytest.mark.parametrize("text", [
    "country = 1", "country <> 1", "age = 'UK'", "age <> '17'", "yes = 1", "yes <> 'true'", "yes = 'TRUE'", "1 = '1'",
    "country > 5", "yes < 5", "digits = 42", "digits > 1", "age", "country", "digits",
])  # fmt: skip
def test_values_of_unlike_types_compare_false(text):
    """Also by <>, and only numbers have an order. A name that is no boolean is no true condition."""
    assert value(text) is False


@pytest.mark.parametrize("text", [
    "none = 1", "none <> 1", "none > 1", "none = 'x'", "none = none", "NOT none = 1", "none", "NOT none",
    "none BETWEEN 1 AND 2", "none NOT BETWEEN 1 AND 2", "none IN ('x')", "none NOT IN ('x')", "none LIKE 'x'",
    "none NOT LIKE 'x'", "none + 1 = 1", "-none = 1", "age = none",
])  # fmt: skip
def test_null_makes_unknown(text):
    assert value(text) is None
    assert compile(text)(MESSAGE.get) is False


TRUTH = {"T": True, "F": False, "U": None}


@pytest.mark.parametrize("row", [
    "T T T T", "T F F T", "T U U T", "F T F T", "F F F F", "F U F U", "U T U T", "U F F U", "U U U U",
])  # fmt: skip
def test_the_truth_tables(row):
    """a, b, a AND b, a OR b."""
    a, b, both, either = row.split()
    names = {"T": "yes", "F": "no", "U": "none"}
    assert value(f"{names[a]} AND {names[b]}") is TRUTH[both]
    assert value(f"{names[a]} OR {names[b]}") is TRUTH[either]
    assert value(f"NOT {names[a]}") is {True: False, False: True, None: None}[TRUTH[a]]


@pytest.mark.parametrize("text, expected", [
    ("TRUE OR TRUE AND FALSE", True), ("(TRUE OR TRUE) AND FALSE", False), ("NOT FALSE AND FALSE", False),
    ("NOT (FALSE AND FALSE)", True), ("NOT NOT TRUE", True), ("NOT age = 18", True), ("not No oR Yes", None),
    ("age + 3 * 2 = 23", True), ("(age + 3) * 2 = 40", True), ("10 - 3 - 2 = 5", True), ("2 * 6 / 4 = 3", True),
    ("-age = -17", True), ("- -age = +17", True), ("3 - -2 = 5", True), ("2 * -3 = -6", True), ("-2 * -3 = 6", True),
    ("1 + 1 = 2 AND NOT 1 + 1 = 3", True), ("((((age)))) = ((17))", True), ("(yes)", True),
])  # fmt: skip
def test_precedence(text, expected):
    assert value(text) is expected


@pytest.mark.parametrize("text, expected", [
    ("7 / 2 = 3", True), ("-7 / 2 = -3", True), ("7 / 2.0 = 3.5", True), ("7. = 7", True), (".5 * 2 = 1", True),
    ("5E2 = 500", True), ("5.0e-1 = .5", True), ("1f = 1", True), ("1.5D = 1.5", True), ("0x1F = 31", True),
    ("0XffL = 255", True), ("017 = 15", True), ("0 = 00", True), ("57L = 57", True), ("+62 = 62", True),
    ("9223372036854775807 + 1 = -9223372036854775808", True), ("-9223372036854775808 < 0", True),
    ("-9223372036854775808 / -1 = -9223372036854775808", True), ("age / zero = 1", None), ("age / 0.0 > 1e308", True),
    ("-1 / 0.0 < -1e308", True), ("0 / 0.0 = 0 / 0.0", False), ("country + 1 = 2", None), ("yes * 1 = 1", None),
    ("1e308 * 10 > 1e308", True),
])  # fmt: skip
def test_numbers(text, expected):
    assert value(text) is expected


@pytest.mark.parametrize("text, expected", [
    ("age BETWEEN 15 AND 19", True), ("age BETWEEN 17 AND 17", True), ("age NOT BETWEEN 15 AND 19", False),
    ("age between 19 and 15", False), ("age BETWEEN 1 AND 2 OR age BETWEEN 16 AND 18", True),
    ("age BETWEEN 15 AND 19 AND yes", True), ("age + 1 BETWEEN weight AND age * 2", True),
    ("17 BETWEEN none AND 1", False), ("17 BETWEEN none AND 19", None), ("country BETWEEN 1 AND 2", False),
])  # fmt: skip
def test_between(text, expected):
    assert value(text) is expected


@pytest.mark.parametrize("text, expected", [
    ("country IN ('UK', 'US')", True), ("country IN ('US')", False), ("country NOT IN ('UK')", False),
    ("country not in ('US','France')", True), ("quote IN ('it''s')", True), ("age IN ('17')", False),
    ("age NOT IN ('17')", True), ("country IN ('uk')", False),
])  # fmt: skip
def test_in(text, expected):
    assert value(text) is expected


@pytest.mark.parametrize("text, expected", [
    ("phone LIKE '12%3'", True), ("phone LIKE '12_3'", False), ("phone LIKE '12__3'", True), ("phone LIKE '%'", True),
    ("phone LIKE '12993'", True), ("phone LIKE '1299'", False), ("phone LIKE '2993'", False), ("phone LIKE ''", False),
    ("phone LIKE '%9%9%'", True), ("phone LIKE '%9%9%9%'", False), ("phone LIKE '%%3'", True),
    ("phone LIKE '%3'", True), ("phone LIKE '1%'", True), ("phone LIKE '_____'", True),
    ("phone LIKE '____'", False), ("phone LIKE '%_%_%'", True),
    ("under LIKE '\\_%' ESCAPE '\\'", True), ("phone LIKE '\\_%' ESCAPE '\\'", False), ("under LIKE '_%'", True),
    ("under LIKE '!_foo' ESCAPE '!'", True), ("under LIKE '!_!f!o!o' ESCAPE '!'", True), ("under LIKE '.foo'", False),
    ("phone NOT LIKE '12%3'", False), ("phone NOT LIKE 'x'", True), ("age LIKE '17'", False),
    ("under LIKE '[_]%'", False), ("quote LIKE '%''%'", True), ("long LIKE '%a%a%'", True),
    ("country LIKE 'u%'", False),
])  # fmt: skip
def test_like(text, expected):
    assert value(text) is expected


def test_like_is_not_exponential():
    """A pattern that tries again what it has passed over would not come to an end here."""
    assert value("long LIKE '" + "%a" * 500 + "%b'") is False
    assert value("long LIKE '" + "%_a" * 500 + "_%b'") is False


def test_like_takes_line_breaks_for_characters():
    assert value("x LIKE 'a%c_'", {"x": "a\nb\nc\n"}) is True
    assert value("x LIKE 'a'", {"x": "a\n"}) is False


@pytest.mark.parametrize("text, expected", [
    ("none IS NULL", True), ("none IS NOT NULL", False), ("age IS NULL", False), ("age is not null", True),
    ("NOT none IS NULL", False),
])  # fmt: skip
def test_is_null(text, expected):
    assert value(text) is expected


@pytest.mark.parametrize("text", ["", "  \n", "convert_string_expressions:", "hyphenated_props: "])
def test_an_empty_selector_takes_all(text):
    assert compile(text)({}.get) is True


@pytest.mark.parametrize("text, position", [
    ("age =", 5), ("age = = 1", 7), ("= 1", 1), ("age 1", 5), ("(age = 1", 8), ("age = 1)", 8), ("age = 'x", 7),
    ("age ~ 1", 5), ("1", 1), ("'x'", 1), ("age + 1", 1), ("yes AND 'x'", 9), ("NOT 5", 5), ("'a' < 'b'", 1),
    ("age < 'b'", 7), ("TRUE < FALSE", 1), ("(age = 1) = 2", 2), ("age = (age = 1)", 8), ("'a' + 1 = 2", 1),
    ("-'a' = 2", 2), ("age BETWEEN 'a' AND 2", 13), ("age BETWEEN 1", 13), ("age IN ()", 9), ("age IN (1)", 9),
    ("'x' IN ('x')", 1), ("age + 1 IN ('x')", 1), ("age IN 'x'", 8), ("age LIKE x", 10), ("age + 1 IS NULL", 1),
    ("age LIKE 'x' ESCAPE 'ab'", 21), ("age LIKE 'x' ESCAPE ''", 21), ("age LIKE 'a!' ESCAPE '!'", 10),
    ("age IS 5", 8), ("age = NULL", 7), ("NULL = 1", 1), ("age = 1 AND", 11), ("AND = 1", 1), ("age = 09", 7),
    ("age = 0x", 7), ("age = 1x", 7), ("age = 1.2.3", 7), ("age = 1e", 7), ("age = 9223372036854775808", 7),
    ("age = 1e999", 7), ("1 < 2 < 3", 7), ("age = 1 age = 2", 9), ("JMSReplyTo = 'x'", 1), ("yes AND JMSFoo = 1", 9),
    ("a.b = 1", 2), ('a = "x"', 5), ("age IN ('x',)", 13), ("age == 17", 6), ("age != 17", 5),
    ("TRUE AND between = 1", 10), ("x = 1;", 6), ("x = 'a' 'b'", 9), ("+TRUE = 1", 2),
])  # fmt: skip
def test_a_fault_is_named_with_its_position(text, position):
    for spaces in (0, 3):
        with pytest.raises(SelectorError) as refused:
            compile(" " * spaces + text)
        assert refused.value.position == position + spaces, str(refused.value)
        assert f"at character {position + spaces}" in str(refused.value)


def test_size_and_depth_are_limited():
    with pytest.raises(SelectorError, match=f"of at most {MAX_LENGTH}"):
        compile("x" * (MAX_LENGTH + 1))
    assert value("NOT " * (MAX_DEPTH - 2) + "age = 17") is True
    for deep in ("NOT " * 60 + "yes", "-" * 60 + "age = 1", "(" * 60 + "age" + "+1)" * 60 + " = 1"):
        with pytest.raises(SelectorError, match="nested more than 50 deep"):
            compile(deep)


def test_length_is_not_depth():
    assert value(" OR ".join(["age = 1"] * 300) + " OR yes") is True
    assert value(" + ".join(["1"] * 1000) + " = 1000") is True
    assert value("(" * 2000 + "yes" + ")" * 2000) is True


# -- prefixes and headers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, expected", [
    ("digits = 42", True), ("digits > 41.5", True), ("digits + 1 = 43", True), ("country = 1", False),
    ("truth = TRUE", True), ("truth", True), ("country", False), ("age = '17'", True),
    ("digits BETWEEN 1 AND 50", True), ("country + 1 = 2", None), ("digits = '42'", True), ("yes = 'true'", True),
    ("yes = 'x'", False),
])  # fmt: skip
def test_texts_are_converted_on_request(text, expected):
    assert value(f"convert_string_expressions:{text}") is expected


def test_names_may_have_hyphens_on_request():
    message = {"content-type": "text/plain", "not-me": 1, "a": 3, "a-b": "x"}
    for prefix in ("hyphenated_props:", "hyphenated_props:convert_string_expressions:"):
        assert value(f"{prefix}content-type = 'text/plain' AND not-me = 1", message) is True
        assert value(f"{prefix}a - 1 = 2 AND a-b = 'x'", message) is True
    with pytest.raises(SelectorError) as refused:
        compile("hyphenated_props:a-b = ")
    assert refused.value.position == 23


def message(**fields):
    return ClientMessage("queue:q", "/queue/q", **fields)


FULL = message(
    properties=pack({"color": "a:b", "size": "5"}), correlation="c1", type="t", reply_to="/queue/r", priority=7,
    timestamp=5_000_999_999, persistent=False, group="g", group_seq=3, annotations={"reason": "late"},
)  # fmt: skip


@pytest.mark.parametrize("text", [
    "color = 'a:b'", "size = '5'", "JMSPriority = 7", "JMSTimestamp = 5000", "JMSDeliveryMode = 'NON_PERSISTENT'",
    "JMSMessageID = 's1#5'", "JMSCorrelationID = 'c1'", "JMSType = 't'", "JMSXGroupID = 'g'", "JMSXGroupSeq = 3",
    "JMSXDeliveryCount = 2", "reason = 'late'", "type = 't'",
    "hyphenated_props:correlation-id = 'c1' AND reply-to = '/queue/r' AND content-type IS NULL",
    "JMSXUserID IS NULL", "JMSXFoo IS NULL", "JMS_Foo IS NULL", "other IS NULL", "Color IS NULL",
])  # fmt: skip
def test_the_fields_of_a_message(text):
    assert compile(text)(lookup(FULL, 2, "s1#5")) is True


def test_header_fields_may_be_missing():
    get = lookup(message())
    for name in ("JMSMessageID", "JMSCorrelationID", "JMSType", "JMSXGroupID", "JMSXGroupSeq"):
        assert compile(f"{name} IS NULL")(get) is True
    assert compile("JMSDeliveryMode = 'PERSISTENT'")(get) is True


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("name", sorted(BROKERS_OWN))
def test_what_the_broker_alone_says_is_text_and_no_property(name, typed):
    forged = pack({name: "root"})
    assert lookup(message(properties=forged, annotations={name: "007"}, typed=typed))(name) == "007"
    assert lookup(message(properties=forged, typed=typed))(name) is None


def said(headers, typed=False):
    """A message with these headers of a STOMP client."""
    return message(**head_of(headers, typed)._asdict())


def test_headers_are_typed_on_request():
    headers = {
        "i": "-5",
        "d": "1.50",
        "t": "true",
        "f": "false",
        "s": "x",
        "big": "1" * 19,
        "huge": "9" * 19,
        "n": "nan",
    }
    get = lookup(said(headers, True))
    found = {name: get(name) for name in headers}
    assert found == {
        "i": -5, "d": 1.5, "t": True, "f": False, "s": "x", "big": int("1" * 19), "huge": float("9" * 19), "n": "nan",
    }  # fmt: skip
    assert [type(found[name]) for name in ("i", "d", "t", "big", "huge")] == [int, float, bool, int, float]


def test_a_message_may_say_the_types_of_its_properties():
    get = lookup(said(to_headers({"i": 5, "f": 2.0, "b": True, "s": "5", "t": "true"})))
    found = {name: get(name) for name in "ifbst"}
    assert found == {"i": 5, "f": 2.0, "b": True, "s": "5", "t": "true"}
    assert compile("i > 4 AND f = 2 AND b AND s = '5' AND t = 'true'")(get) is True
    wrong = lookup(said({"i": "x", "b": "1", "property-types": "i=int,b=bool,,c=int"}))
    assert [wrong(name) for name in "ibc"] == ["x", "1", None]


@pytest.mark.parametrize("digits", [str(2**63), str(-(2**63) - 1), "9" * 400, "9" * 5_000])
def test_a_whole_number_of_more_than_64_bits_is_text(digits):
    """Python has such numbers, but none of the arithmetic of a selector."""
    get = lookup(said({"i": digits, "j": str(2**63 - 1), "property-types": "i=int,j=int"}))
    assert get("i") == digits and get("j") == 2**63 - 1
    for text in ("i + 1.5 > 0", "i / 2.5 > 0", "-i < 0", "i > 1", "i BETWEEN 0 AND 1e300"):
        assert compile(text)(get) is False
    assert compile("j + 1.5 > 0 AND j * j = 1 AND j / 2.5 > 0")(get) is True


@pytest.mark.parametrize("text", ["", " 1", "1 ", "0x1", "inf", "1_0", "--1", "1e", "e1", ".", "٣", "1" * 50])
def test_what_is_no_number(text):
    assert number_of(text) is None


def test_the_parser_is_loaded_by_the_first_selector_only():
    code = "import sys, mombroker.broker.selectors as s; s.compile(''); sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# -- against an evaluator that walks a tree ------------------------------------------------------------------------

NAMES = ["i", "j", "d", "s", "u", "t", "f", "none"]


def numbers(depth):
    leaf = st.one_of(
        st.integers(0, 20).map(lambda n: ("lit", n)),
        st.sampled_from([0.5, 2.0, 1e3]).map(lambda n: ("lit", n)),
        st.sampled_from(NAMES).map(lambda n: ("name", n)),
    )
    if not depth:
        return leaf
    inner = numbers(depth - 1)
    return leaf | st.tuples(st.sampled_from("+-*/"), inner, inner) | st.tuples(st.just("neg"), inner)


def conditions(depth):
    texts = st.sampled_from(["", "a", "ab", "b%", "a_", "it's"])
    name = st.sampled_from(NAMES)
    leaf = st.one_of(
        st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numbers(2), numbers(1)),
        st.tuples(st.sampled_from(["=", "<>"]), name.map(lambda n: ("name", n)), texts.map(lambda t: ("lit", t))),
        st.tuples(st.just("between"), st.booleans(), numbers(1), numbers(1), numbers(1)),
        st.tuples(st.just("in"), st.booleans(), name, st.lists(texts, min_size=1, max_size=3)),
        st.tuples(st.just("like"), st.booleans(), name, texts),
        st.tuples(st.just("null"), st.booleans(), name),
        name.map(lambda n: ("name", n)),
        st.booleans().map(lambda b: ("lit", b)),
    )
    if not depth:
        return leaf
    inner = conditions(depth - 1)
    return leaf | st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner)


def shown(tree):
    match tree:
        case ("lit", bool(value)):
            return str(value).upper()
        case ("lit", str(value)):
            return "'" + value.replace("'", "''") + "'"
        case ("lit", value):
            return repr(value)
        case ("name", name):
            return name
        case ("neg", a):
            return f"-({shown(a)})"
        case ("not", a):
            return f"NOT ({shown(a)})"
        case ("between", negative, a, b, c):
            return f"({shown(a)}) {'NOT ' * negative}BETWEEN ({shown(b)}) AND ({shown(c)})"
        case ("in", negative, name, texts):
            return f"{name} {'NOT ' * negative}IN ({', '.join(shown(('lit', text)) for text in texts)})"
        case ("like", negative, name, pattern):
            return f"{name} {'NOT ' * negative}LIKE {shown(('lit', pattern))}"
        case ("null", negative, name):
            return f"{name} IS {'NOT ' * negative}NULL"
        case (sign, a, b):
            return f"({shown(a)}) {sign.upper()} ({shown(b)})"


def number(value):
    return value if type(value) in (int, float) else None


def like(text, pattern):
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(text[at:], pattern[1:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and like(text[1:], pattern[1:])


def flip(negative, value):
    return value if value is None or not negative else not value


def compared(sign, a, b):
    if a is None or b is None:
        return None
    kinds = [{bool: "b", str: "s"}.get(type(value), "n") for value in (a, b)]
    if kinds[0] != kinds[1] or (kinds[0] != "n" and sign not in ("=", "<>")):
        return False
    return {"=": a == b, "<>": a != b}[sign] if sign in ("=", "<>") else eval(f"a {sign} b")


def truth(value):
    return value if value is None or type(value) is bool else False


def judged(tree, m):
    match tree:
        case ("lit", value):
            return value
        case ("name", name):
            return m.get(name)
        case ("neg", a):
            value = number(judged(a, m))
            return None if value is None else selectors.OPERATORS["-"](0, value)
        case ("not", a):
            return flip(True, truth(judged(a, m)))
        case ("and" | "or" as word, a, b):
            values = [truth(judged(a, m)), truth(judged(b, m))]
            decisive = word == "or"
            return decisive if decisive in values else None if None in values else not decisive
        case ("between", negative, a, b, c):
            values = [compared(">=", judged(a, m), judged(b, m)), compared("<=", judged(a, m), judged(c, m))]
            return flip(negative, False if False in values else None if None in values else True)
        case ("in", negative, name, texts):
            value = m.get(name)
            return flip(negative, None if value is None else type(value) is str and value in texts)
        case ("like", negative, name, pattern):
            value = m.get(name)
            return flip(negative, None if value is None else type(value) is str and like(value, pattern))
        case ("null", negative, name):
            return flip(negative, m.get(name) is None)
        case ("+" | "-" | "*" | "/" as sign, a, b):
            a, b = number(judged(a, m)), number(judged(b, m))
            return None if a is None or b is None else selectors.OPERATORS[sign](a, b)
        case (sign, a, b):
            return compared(sign, judged(a, m), judged(b, m))


VALUES = st.fixed_dictionaries({
    "i": st.integers(-3, 20), "j": st.integers(-(2**63), 2**63 - 1), "d": st.floats(allow_nan=False),
    "s": st.sampled_from(["", "a", "ab", "abc", "it's"]), "t": st.just(True), "f": st.just(False),
    "u": st.one_of(st.none(), st.text(max_size=3), st.integers(0, 5), st.booleans()),
})  # fmt: skip


@given(conditions(3), VALUES)
@settings(max_examples=150)
def test_any_selector_means_what_its_tree_means(tree, message):
    found, expected = value(shown(tree), message), judged(tree, message)
    assert truth(found) is truth(expected), shown(tree)


WORDS = [
    "age", "x", "=", "<>", "<", "(", ")", "'a'", "'", "1", "1.5", "0x", "NOT", "AND", "OR", "BETWEEN", "IN", "LIKE",
    "ESCAPE", "IS", "NULL", "TRUE", "+", "-", "*", "/", ",", "-1", "é", "\0", "\n", "hyphenated_props:", "%", "#",
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=15).map(" ".join))
@settings(max_examples=250)
def test_any_text_is_a_selector_or_a_fault_with_its_position(text):
    try:
        selector = compile(text)
    except SelectorError as error:
        assert 1 <= error.position <= len(text)
    else:
        assert selector(MESSAGE.get) in (True, False)


# -- cost --------------------------------------------------------------------------------------------------------------


@pytest.mark.interpreted
def test_the_headers_of_a_message_are_decoded_once_for_all_that_ask(monkeypatch):
    decoded = []
    monkeypatch.setattr(properties, "read", lambda packed: decoded.append(packed) or unpack(packed))
    b = Broker()
    clients = [b.connect().subscribe("s", "topic:t", selector=f"n = '{number}'") for number in range(50)]
    b.connect().send("topic:t", "text", properties=pack({"n": "7"}))
    assert [number for number, client in enumerate(clients) if client.texts] == [7] and decoded == [pack({"n": "7"})]


def test_properties_of_the_broker_are_not_kept_with_the_headers_of_another_message():
    first, second = (
        ClientMessage("queue:q", "", annotations={"dead-letter-reason": "x"}),
        ClientMessage("queue:q", ""),
    )
    dead = compile("hyphenated_props:dead-letter-reason = 'x'")
    assert [dead(lookup(put)) for put in (first, second, first)] == [True, False, True]


def test_parsers_of_all_kinds_are_there_before_the_first_selector():
    selectors._parser.cache_clear()
    selectors.prepare()
    made = selectors._parser.cache_info().misses
    for text in ("a = 1", "hyphenated_props:a-b = 1", "convert_string_expressions:a = 1"):
        selectors.compile.__wrapped__(text)
    assert selectors._parser.cache_info().misses == made == 4
