"""The page of a log: what to do first, charts without scripts, findings with place and way out."""

from __future__ import annotations

import re

from log_examples import FINDINGS, broken, campaign, report

from conftest import Habit
from outlay import check
from outlay.pages.log_health import decision, render
from telling import missing


def test_the_first_line_says_whether_to_go_on() -> None:
    assert decision(report()).startswith("Go on")
    assert not missing(decision(broken()), "Repair", "1 error")
    assert not missing(decision(report(FINDINGS[1:])), "1 warning")


def test_every_finding_has_its_place_and_its_way_out() -> None:
    page = render(broken(), campaign())
    text = re.sub(r"<[^>]+>", " ", page)
    for finding in FINDINGS:
        assert not missing(text.replace("&lt;", "<").replace("&gt;", ">"), finding.where, finding.message.rstrip("."))
        assert finding.way_out.replace("'", "&#39;") in page
    assert "<b>" not in page, "names from files are escaped"


def test_charts_are_there_without_scripts_and_say_what_they_show() -> None:
    page = render(report(), campaign())
    assert page.count("<svg") == 3
    assert "<script" not in page
    said = re.findall(r'role="img" aria-label="([^"]+)"', page)
    assert not missing(said[0], "0 on 2026-03-09", "1,000 on 2026-03-02")
    assert not missing(said[1], "nothing 50%", "Coupons given")
    assert not missing(page, "followed later", "900", "without level", "17")


def test_a_log_is_told_by_day_and_its_page_is_written(habit: Habit, tmp_path) -> None:  # type: ignore[no-untyped-def]
    found = check(habit.campaign, page=tmp_path / "log.html")
    assert sum(each.rows * each.days for each in found.by_day) == found.rows
    assert all(abs(sum(each.given.values()) - 1) < 1e-9 for each in found.by_day)
    assert sum(found.propensities) == sum(action.choices for action in found.actions)
    assert found.joins is not None
    assert found.joins.next_day + found.joins.later + found.joins.last + found.joins.same_day == found.rows
    assert "habit" in (tmp_path / "log.html").read_text(encoding="utf-8")
