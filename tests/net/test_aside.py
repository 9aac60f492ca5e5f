"""What the HTTP port is asked beside the verbs."""

from mombroker.core.errors import MomError
from mombroker.net.aside import Aside


def test_one_at_a_time_is_made_and_what_goes_wrong_is_a_sentence():
    work, answers = [], []

    def plan(text):
        if text == "refused":
            raise MomError("it is refused")
        return {"text": [text][0 if text else 1]}

    aside = Aside(lambda *call: work.append(call), {"plan": plan})
    for text in ("first", "second"):
        aside.ask("plan", {"text": text}, answers.append)
    assert answers == ["another plan is being made: ask again"] and len(work) == 1
    for text in ("", "refused", "last"):
        do, done = work.pop()
        done(do())
        aside.ask("plan", {"text": text}, answers.append)
    do, done = work.pop()
    done(do())
    assert answers[1:] == [
        {"text": "first"}, "the plan cannot be made (IndexError: list index out of range)", "it is refused",
        {"text": "last"},
    ]  # fmt: skip
