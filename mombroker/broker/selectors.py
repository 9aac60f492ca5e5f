"""Message selectors as in Jakarta Messaging 3.1 §3.8: text to Python closures, with three-valued logic.

Where the specification is silent: exact arithmetic has 64 bits and wraps; arithmetic on a value that is not a number,
and exact division by zero, are unknown; LIKE and IN on a value that is not text are false, and so is a condition that
is not boolean.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from mombroker.broker.message import BROKERS_OWN, ClientMessage
from mombroker.broker.properties import BIT63, named
from mombroker.broker.texts import guessed, number_of
from mombroker.core.errors import MomError

if TYPE_CHECKING:
    from lark import Lark, Token

Value = str | int | float | bool | None  # None: NULL, and of a condition: unknown
Lookup = Callable[[str], Value]
Evaluate = Callable[[Lookup], Value]
Required = tuple[tuple[str, Value], ...]  # names, and the value that each must have

MAX_LENGTH = 4_096
MAX_DEPTH = 50
CONVERT, HYPHENS = "convert_string_expressions:", "hyphenated_props:"
BIT64 = 1 << 64

# A Node's kind, as far as it is known before a message comes.
NAME, TEXT, NUMBER, BOOLEAN, CONDITION = "a name", "a text", "a number", "a boolean", "a condition"

KEYWORDS = {
    "_OR": "or", "_AND": "and", "NOT": "not", "BETWEEN": "between", "IN": "in", "LIKE": "like", "_ESCAPE": "escape",
    "IS": "is", "_NULL": "null", "TRUE": "true", "FALSE": "false",
}  # fmt: skip
GRAMMAR = r"""
?start: either
?either: both (_OR both)*
?both: negation (_AND negation)*
?negation: NOT negation -> negated
    | comparison
?comparison: sum
    | sum COMPARE sum -> compared
    | sum [NOT] BETWEEN sum _AND sum -> between
    | sum [NOT] IN "(" TEXT ("," TEXT)* ")" -> among
    | sum [NOT] LIKE TEXT [_ESCAPE TEXT] -> like
    | sum IS [NOT] _NULL -> null
?sum: product (SUM product)*
?product: sign (PRODUCT sign)*
?sign: SUM sign -> signed
    | atom
?atom: NAME -> name
    | TEXT -> text
    | EXACT -> exact
    | APPROXIMATE -> approximate
    | TRUE -> true
    | FALSE -> false
    | "(" either ")"
COMPARE: "=" | "<>" | "<=" | ">=" | "<" | ">"
SUM: "+" | "-"
PRODUCT: "*" | "/"
TEXT: /'(?:[^']|'')*'/
APPROXIMATE.2: /(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eEfFdD]))(?:[eE][+-]?[0-9]+)?[fFdD]?(?![\w$.])/
EXACT.1: /(?:0[xX][0-9a-fA-F]+|[0-9]+)[lL]?(?![\w$.])/
NAME: /(?!(?i:WORDS)(?![PART]))(?:[^\W\d]|\$)[PART]*/
%ignore /[ \t\f\r\n]+/
"""


class SelectorError(MomError):
    """A selector that is wrong at character `position` (from 1), or as a whole (0)."""

    def __init__(self, fault: str, position: int = 0):
        self.fault, self.position = fault, position
        super().__init__(f"selector: {fault}" + (f", at character {position}" if position else ""))


@dataclass(slots=True)
class Selector:
    """A condition on a message. False and unknown are the same to a consumer.

    requires   it is false, or unknown, unless each of these names has this value, as `=` compares
    """

    text: str
    evaluate: Evaluate
    requires: Required = ()

    def __call__(self, lookup: Lookup) -> bool:
        return self.evaluate(lookup) is True


@lru_cache(256)
def compile(text: str) -> Selector:
    """The selector that the text says; an empty one takes every message. Raises SelectorError."""
    if len(text) > MAX_LENGTH:
        raise SelectorError(f"{len(text)} characters, of at most {MAX_LENGTH}")
    body, prefixes = text.lstrip(), set()
    while prefix := next((each for each in (CONVERT, HYPHENS) if body.startswith(each)), ""):
        prefixes.add(prefix)
        body = body[len(prefix) :].lstrip()
    if not body:
        return Selector(text, lambda get: True)
    from lark import exceptions

    start = len(text) - len(body) + 1
    try:
        node = _parser(CONVERT in prefixes, HYPHENS in prefixes).parse(body)
        condition = _Builder(CONVERT in prefixes).condition(node)  # type: ignore[arg-type]
        return Selector(text, condition.evaluate, condition.requires)
    except SelectorError as error:
        raise SelectorError(error.fault, error.position + start) from None
    except exceptions.UnexpectedCharacters as error:
        at = error.pos_in_stream or 0
        raise SelectorError(f"unexpected {body[at]!r}", at + start) from None
    except exceptions.UnexpectedToken as error:
        if error.token.type == "$END":
            raise SelectorError("it ends too early", len(text)) from None
        raise SelectorError(f"unexpected {str(error.token)[:40]!r}", (error.token.start_pos or 0) + start) from None


def prepare() -> None:
    """Make the parsers of all kinds, which takes longer than others should wait when the first selector comes."""
    for convert in (False, True):
        for hyphens in (False, True):
            _parser(convert, hyphens)


@lru_cache(4)
def _parser(convert: bool, hyphens: bool) -> Lark:
    from lark import Lark

    part = r"\w$-" if hyphens else r"\w$"
    words = "\n".join(rf"{name}.3: /{word}(?![{part}])/i" for name, word in KEYWORDS.items())
    grammar = GRAMMAR.replace("PART", part).replace("WORDS", "|".join(KEYWORDS.values()))
    # With its builder inside, the parser needs no recursion, however deep a text is nested.
    return Lark(grammar + words, parser="lalr", transformer=_Builder(convert), maybe_placeholders=True)


@dataclass(slots=True)
class Node:
    """A part of a selector. `position` is from 0; `literal` its value, where that is known, and `name` what it names;
    `requires` as in Selector."""

    kind: str
    evaluate: Evaluate
    position: int
    depth: int = 0
    literal: Value = None
    name: str = ""
    requires: Required = ()


class _Builder:
    """The closures for the grammar's rules, from the innermost part outwards."""

    def __init__(self, convert: bool):
        self.convert = convert  # texts to numbers and booleans, where these are needed

    def node(self, kind: str, evaluate: Evaluate, *parts: Node) -> Node:
        depth = 1 + max(part.depth for part in parts)
        if depth > MAX_DEPTH:
            raise SelectorError(f"nested more than {MAX_DEPTH} deep", parts[0].position)
        return Node(kind, evaluate, parts[0].position, depth)

    # -- values ----------------------------------------------------------------------------------------------------

    def name(self, children: list[Token]) -> Node:
        (token,) = children
        name = str(token)
        if name.startswith("JMS") and name not in HEADER_FIELDS and not name.startswith(("JMSX", "JMS_")):
            raise SelectorError(f"{name} cannot be selected on, only {', '.join(HEADER_FIELDS)}", _at(token))
        return Node(NAME, lambda get: get(name), _at(token), name=name)

    def text(self, children: list[Token]) -> Node:
        return _literal(TEXT, _unquoted(children[0]), children[0])

    def exact(self, children: list[Token]) -> Node:
        digits = children[0].rstrip("lL")
        try:
            value = int(digits, 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10)
        except ValueError:
            raise SelectorError(f"{digits[:40]} is no octal number", _at(children[0])) from None
        if value > BIT63:
            raise SelectorError(f"{digits[:40]} has more than 64 bits", _at(children[0]))
        return _literal(NUMBER, value, children[0])

    def approximate(self, children: list[Token]) -> Node:
        value = float(children[0].rstrip("fFdD"))
        if math.isinf(value):
            raise SelectorError(f"{children[0][:40]} is too large", _at(children[0]))
        return _literal(NUMBER, value, children[0])

    def true(self, children: list[Token]) -> Node:
        return _literal(BOOLEAN, True, children[0])

    def false(self, children: list[Token]) -> Node:
        return _literal(BOOLEAN, False, children[0])

    # -- arithmetic ------------------------------------------------------------------------------------------------

    def signed(self, children: list[Any]) -> Node:
        sign, node = children
        if sign == "+":
            return self.numeric(node)
        if node.literal == BIT63 and type(node.literal) is int:
            return _literal(NUMBER, -BIT63, sign)  # the one number whose positive does not exist
        number = self.numeric(node).evaluate

        def negative(get: Lookup) -> Value:
            value = number(get)
            return None if value is None else _wrapped(-value)  # type: ignore[operator]

        if node.literal is not None:
            return _literal(NUMBER, negative(lambda name: None), sign)
        return self.node(NUMBER, negative, node)

    def sum(self, children: list[Any]) -> Node:
        parts = [self.numeric(node) for node in children[::2]]
        first, rest = parts[0].evaluate, [part.evaluate for part in parts[1:]]
        steps = [(OPERATORS[sign], part) for sign, part in zip(children[1::2], rest, strict=True)]

        def evaluate(get: Lookup) -> Value:
            value = first(get)
            for operate, part in steps:
                other = part(get)
                if value is None or other is None:
                    return None
                value = operate(value, other)
            return value

        return self.node(NUMBER, evaluate, *parts)

    product = sum

    def numeric(self, node: Node) -> Node:
        """The part as a number; unknown where it turns out to be none."""
        if node.kind not in (NAME, NUMBER):
            raise SelectorError(f"a number is needed, not {node.kind}", node.position)
        self.check(node)
        if node.kind == NUMBER:
            return node
        evaluate, convert = node.evaluate, self.convert

        def number(get: Lookup) -> Value:
            value = evaluate(get)
            if type(value) is str and convert:
                return number_of(value)
            return value if type(value) in NUMBERS else None

        return Node(NAME, number, node.position, node.depth)

    def check(self, node: Node) -> Node:
        if node.literal == BIT63 and type(node.literal) is int:
            raise SelectorError(f"{BIT63} has more than 64 bits", node.position)
        return node

    # -- comparison ------------------------------------------------------------------------------------------------

    def compared(self, children: list[Any]) -> Node:
        left, sign, right = children
        ordered = sign not in ("=", "<>")
        for node in (left, right):
            if node.kind == CONDITION or (ordered and node.kind in (TEXT, BOOLEAN)):
                raise SelectorError(f"{sign} cannot be used with {node.kind}", node.position)
            self.check(node)
        made = self.node(CONDITION, self.comparison(str(sign), left.evaluate, right.evaluate), left, right)
        if sign == "=" and not self.convert:
            for one, other in ((left, right), (right, left)):
                if one.name and other.literal is not None:
                    made.requires = ((one.name, other.literal),)
        return made

    def comparison(self, sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
        test, ordered, convert = TESTS[sign], sign not in ("=", "<>"), self.convert

        def evaluate(get: Lookup) -> Value:
            a = left(get)
            if a is None:
                return None
            b = right(get)
            if b is None:
                return None
            if type(a) is not type(b) and not (type(a) in NUMBERS and type(b) in NUMBERS):
                if not convert:
                    return False
                a, b = _converted(a, b), _converted(b, a)
                if a is None or b is None:
                    return False
            if ordered and type(a) not in NUMBERS:
                return False
            return test(a, b)

        return evaluate

    def between(self, children: list[Any]) -> Node:
        node, negative, _, low, high = children
        for each in (node, low, high):
            if each.kind not in (NAME, NUMBER):
                raise SelectorError(f"BETWEEN needs numbers, not {each.kind}", each.position)
            self.check(each)
        above = self.comparison(">=", node.evaluate, low.evaluate)
        below = self.comparison("<=", node.evaluate, high.evaluate)
        return self.maybe_not(negative, self.node(CONDITION, _both([above, below]), node, low, high))

    def among(self, children: list[Any]) -> Node:
        node, negative, word, *texts = children
        name, values = self.named(node, word), frozenset(map(_unquoted, texts))

        def evaluate(get: Lookup) -> Value:
            value = name(get)
            return None if value is None else type(value) is str and value in values

        return self.maybe_not(negative, self.node(CONDITION, evaluate, node))

    def like(self, children: list[Any]) -> Node:
        node, negative, word, pattern, escape = children
        name, match = self.named(node, word), _like(pattern, escape).fullmatch

        def evaluate(get: Lookup) -> Value:
            value = name(get)
            return None if value is None else type(value) is str and match(value) is not None

        return self.maybe_not(negative, self.node(CONDITION, evaluate, node))

    def null(self, children: list[Any]) -> Node:
        node, word, negative = children
        name = self.named(node, word)
        return self.maybe_not(negative, self.node(CONDITION, lambda get: name(get) is None, node))

    def named(self, node: Node, word: Token) -> Evaluate:
        if node.kind != NAME:
            raise SelectorError(f"{word.upper()} needs a name before it, not {node.kind}", node.position)
        return node.evaluate

    # -- logic -----------------------------------------------------------------------------------------------------

    def condition(self, node: Node) -> Node:
        """The part as a condition."""
        if node.kind in (CONDITION, BOOLEAN):
            return node
        if node.kind != NAME:
            raise SelectorError(f"a condition is needed, not {node.kind}", node.position)
        evaluate, convert = node.evaluate, self.convert

        def truth(get: Lookup) -> Value:
            value = evaluate(get)
            if value is None or type(value) is bool:
                return value
            return convert and type(value) is str and value.lower() == "true"

        return Node(CONDITION, truth, node.position, node.depth)

    def maybe_not(self, negative: Token | None, node: Node) -> Node:
        return node if negative is None else self.negated([negative, node])

    def negated(self, children: list[Any]) -> Node:
        part = self.condition(children[1])
        evaluate = part.evaluate

        def negative(get: Lookup) -> Value:
            value = evaluate(get)
            return None if value is None else not value

        return self.node(CONDITION, negative, part)

    def both(self, children: list[Node]) -> Node:
        parts = [self.condition(node) for node in children]
        made = self.node(CONDITION, _both([part.evaluate for part in parts]), *parts)
        made.requires = tuple(each for part in parts for each in part.requires)
        return made

    def either(self, children: list[Node]) -> Node:
        parts = [self.condition(node) for node in children]
        evaluates = [part.evaluate for part in parts]

        def evaluate(get: Lookup) -> Value:
            unknown = False
            for each in evaluates:
                value = each(get)
                if value is True:
                    return True
                unknown = unknown or value is None
            return None if unknown else False

        return self.node(CONDITION, evaluate, *parts)


def _both(evaluates: list[Evaluate]) -> Evaluate:
    def evaluate(get: Lookup) -> Value:
        unknown = False
        for each in evaluates:
            value = each(get)
            if value is False:
                return False
            unknown = unknown or value is None
        return None if unknown else True

    return evaluate


def _at(token: Token) -> int:
    return token.start_pos or 0


def _literal(kind: str, value: Value, token: Token) -> Node:
    return Node(kind, lambda get: value, _at(token), 0, value)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _like(pattern: Token, escape: Token | None) -> re.Pattern[str]:
    """A regular expression that takes linear time for each %: what one has passed over is not tried again."""
    mark = None if escape is None else _unquoted(escape)
    if mark is not None and len(mark) != 1:
        raise SelectorError("ESCAPE takes one character", _at(escape))  # type: ignore[arg-type]
    pieces, signs = [""], iter(_unquoted(pattern))
    for sign in signs:
        if sign == mark:
            sign = next(signs, "")
            if not sign:
                raise SelectorError("the pattern ends with its escape character", _at(pattern))
            pieces[-1] += re.escape(sign)
        elif sign == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if sign == "_" else re.escape(sign)
    first, *middle = pieces
    if not middle:
        return re.compile(first, re.S)
    last = middle.pop()
    return re.compile(first + "".join(f"(?>.*?{piece})" for piece in middle if piece) + f".*{last}", re.S)


# -- numbers -------------------------------------------------------------------------------------------------------

NUMBERS = (int, float)  # not bool
TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _wrapped(value: Any) -> Any:
    """An exact number of 64 bits, as in Java; any other as it is."""
    if type(value) is int and not -BIT63 <= value < BIT63:
        return (value + BIT63) % BIT64 - BIT63
    return value


def _divided(a: Any, b: Any) -> Value:
    if type(a) is int and type(b) is int:
        if b == 0:
            return None
        quotient = abs(a) // abs(b)
        return _wrapped(quotient if (a < 0) == (b < 0) else -quotient)  # type: ignore[no-any-return]
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
    return float(a / b)


OPERATORS: dict[str, Callable[[Any, Any], Value]] = {
    "+": lambda a, b: _wrapped(a + b),
    "-": lambda a, b: _wrapped(a - b),
    "*": lambda a, b: _wrapped(a * b),
    "/": _divided,
}


def _converted(value: Value, other: Value) -> Value:
    """A text as what it is compared with; None if it cannot be that."""
    if type(value) is not str:
        return value
    if type(other) is bool:
        return {"true": True, "false": False}.get(value.lower())
    return number_of(value)


# -- messages ------------------------------------------------------------------------------------------------------


def lookup(message: ClientMessage, count: int = 1, id: str = "") -> Lookup:
    """The values of a message's names; `count` deliveries, the one that is about to be made included."""
    read: Mapping[str, Any] | None = None

    def get(name: str) -> Value:
        nonlocal read
        special = SPECIAL.get(name)
        if special is not None:
            return special(message)
        if name == "JMSXDeliveryCount":
            return count
        if name == "JMSMessageID":
            return id or None
        if read is None:
            read = named(message)
            if message.annotations:
                read = {**read, **_annotations(message)}
        value = read.get(ALIASES.get(name, name))
        return None if isinstance(value, bytes) else value  # no selector knows of bytes

    return get


def _annotations(message: ClientMessage) -> dict[str, Any]:
    """What the broker adds, as the sender's would be taken."""
    return {name: guessed(text) if message.typed else text for name, text in message.annotations.items()}


def _own(name: str, message: ClientMessage) -> Value:
    return message.annotations.get(name)


SPECIAL: dict[str, Callable[[ClientMessage], Value]] = {
    "JMSPriority": lambda message: message.priority,
    "JMSTimestamp": lambda message: message.timestamp // 1_000_000,
    "JMSDeliveryMode": lambda message: "PERSISTENT" if message.persistent else "NON_PERSISTENT",
    "JMSXGroupID": lambda message: message.group or None,
    "JMSXGroupSeq": lambda message: message.group_seq if message.group else None,
    **{name: partial(_own, name) for name in BROKERS_OWN},
}
ALIASES = {"JMSCorrelationID": "correlation-id", "JMSType": "type"}
HEADER_FIELDS = [name for name in ("JMSMessageID", *SPECIAL, *ALIASES) if re.match("JMS[^X]", name)]


def required(selector: str) -> Required:
    """What a message must have to be selected. Raises SelectorError."""
    return compile(selector).requires if selector else ()


Matches = Callable[
    [ClientMessage, str, int], bool
]  # a message, its id, and its deliveries, the one to be made included


def message_filter(selector: str, no_local: str) -> Matches | None:
    """The test by a selector, and against messages of the sender `no_local`; None: everything passes. Raises
    SelectorError."""
    test = compile(selector) if selector else None
    if test is None and not no_local:
        return None

    def wants(put: ClientMessage, id: str, count: int) -> bool:
        return (not no_local or put.sender != no_local) and (test is None or test(lookup(put, count, id)))

    return wants
