"""A process group as a picture: views, places in the total order, what is said again, who crashes."""

from click.testing import CliRunner

from mombroker.admin.cli.main import cli
from mombroker.admin.cli.reference import ROOT
from mombroker.lab import diagram
from mombroker.lab.isis.story import played


def test_views_and_places_are_marks():
    story = played(4, 6, 0.5, 1, 3)
    views = [mark for mark in story.marks if mark.line]
    assert {mark.text for mark in views} == {"view 2: s1 s2 s3"} and len(views) == 4  # who leaves sees it, too
    assert {mark.text for mark in story.marks if mark.process == "s1"} >= {"m2 #1", "m4 #2"}
    (own,) = [arrow for arrow in story.arrows if arrow.message == "m2" and arrow.to == "s2"]
    assert own.held and own.waited_for == "#1 of view 2"


def test_what_a_flush_says_again_is_passed_on_and_a_duplicate_is_a_ring():
    story = played(4, 6, 0.5, 1, 6)
    again = [arrow for arrow in story.arrows if arrow.onward]
    assert again and all(not arrow.delivered for arrow in again)


def test_who_crashes_is_told():
    stories = [played(4, 6, 0.5, 2, seed) for seed in range(1, 8)]
    assert any(mark.text == "crashes" for story in stories for mark in story.marks)


def test_marks_far_from_what_is_drawn_are_left_out():
    story = played(4, 40, 0.5, 3, 2)
    near = story.around(story.arrows[0].message)
    assert len(near.arrows) < len(story.arrows) and len(near.marks) < len(story.marks)
    assert "view" in diagram.svg(story, "all")


def test_the_documents_show_what_is_drawn_today(tmp_path):
    words = ["sim", "diagram", "isis", "--seed", "3", "--around", "m2", "--to", str(tmp_path / "new.svg")]
    assert CliRunner().invoke(cli, words).exit_code == 0
    assert (ROOT / "docs" / "spacetime" / "isis.svg").read_text() == (tmp_path / "new.svg").read_text()
    story = played(4, 6, 0.5, 1, 3)
    assert [(a.frm, a.to) for a in story.arrows if a.message == "m2" and a.held] == [("s3", "s2")]
