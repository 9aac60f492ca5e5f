"""Values that operators write down, against the annotations of the classes that they are for."""

from typing import Annotated, Any, Literal, Optional

import pytest

from mombroker.agents import Agent, notification
from mombroker.agents import annotations as hints
from mombroker.agents import notifications as notes
from mombroker.agents.program import Program
from mombroker.core.errors import MomError

FIT = [
    (int, 3), (float, 3), (float, 0.5), (str, "3"), (bool, True), (bytes, b"x"), (list, [1, "a"]), (dict, {1: 2}),
    (list[int], []), (list[int], [1, 2]), (dict[str, int], {"a": 1}), (int | None, None), (Optional[str], "x"),  # noqa: UP045
    (Literal["a", 1], 1), (Annotated[int, "metres"], 1), (list[dict[str, list[int]]], [{"a": [1]}]), (Any, object()),
    (object, 1), (None, None), (Agent, 1),
]  # fmt: skip
MISFIT = [
    (int, True), (int, 3.0), (int, "3"), (float, "3"), (float, True), (str, 3), (str, b"x"), (bool, 1), (bytes, "x"),
    (list, {}), (dict, []), (list[int], [1, "2"]), (dict[str, int], {1: 1}), (dict[str, int], {"a": "b"}),
    (int | None, "x"), (Literal["a", 1], True), (Annotated[int, "metres"], "1"), (list[dict[str, int]], [{"a": []}]),
    (None, 0),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "value"), FIT)
def test_what_fits(hint, value):
    assert hints.fits(value, hint)


@pytest.mark.parametrize(("hint", "value"), MISFIT)
def test_what_does_not_fit(hint, value):
    assert not hints.fits(value, hint)


@notification
class Order:
    item: str
    count: int = 1
    prices: list[float] | None = None
    photo: bytes = b""


class Shop(Agent):
    orders: int = 0
    stock: dict[str, int]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"item": 42}, """item of {} must be str, not 42; as text it is written '"42"'"""),
        ({"item": "tea", "count": "three"}, "count of {} must be int, not 'three'"),
        ({"item": "tea", "prices": ["x" * 99]}, "prices of {} must be list[float] | None, not ['" + 35 * "x" + "..."),
        ({"item": "tea", "photo": 1}, "photo of {} must be bytes, not 1"),
    ],
)
def test_a_notification_whose_fields_do_not_fit_is_refused_in_one_sentence(fields, sentence):
    with pytest.raises(MomError) as refused:
        notes.compose(Order.__wire_name__, fields)
    assert str(refused.value) == sentence.format(Order.__wire_name__)


def test_text_is_taken_for_bytes():
    payload = notes.compose(Order.__wire_name__, {"item": "tea", "photo": "é"})
    assert notes.decode(Order.__wire_name__, payload).photo == "é".encode()


def test_an_agent_whose_fields_do_not_fit_is_refused_in_one_sentence():
    program, path = Program((__name__,), frozenset()), f"{__name__}:Shop"
    for fields, sentence in [
        ({"stock": {}, "orders": "many"}, f"orders of {path} must be int, not 'many'"),
        ({"stock": [1]}, f"stock of {path} must be dict[str, int], not [1]"),
    ]:
        with pytest.raises(MomError) as refused:
            program.initial(path, fields)
        assert str(refused.value) == sentence
    assert program.initial(path, {"stock": {"tea": 3}})


def test_annotations_that_cannot_be_read_refuse_nothing():
    @notification(name="test.Vague")
    class Vague:
        what: "Undefined"  # noqa: F821

    assert notes.compose("test.Vague", {"what": 3})
