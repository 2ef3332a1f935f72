"""Page one: the words of every verdict, the figures that they come from, and how it looks in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from report_examples import campaign, change, evaluated, example, run, totals

from outlay.core.campaign import Campaign
from outlay.core.reasons import WITHHOLDING, WORDS, Reason, ReasonKind
from outlay.evaluating.diagnostics import MissingDays
from outlay.evaluating.next_test import PlannedTest
from outlay.evaluating.ruled_out import BrokenLimit
from outlay.evaluating.totals import DecisionTotals, Total
from outlay.evaluating.verdict import PolicyChange, Verdict, VerdictKind
from outlay.pages.lines import APART, Line, Lines
from outlay.pages.page_one import REFUSED, PageOne
from outlay.pages.report import render
from outlay.pages.results import RunResults
from telling import missing

LABELS: dict[str, Any] = {
    "reward": "active days",
    "action": {"label": "coupons", "unit": "yuan"},
    "budgets": {"coupon_cost": "coupon money", "reach": "users reached"},
    "segments": {"active": "active lately", "inactive": "not active lately"},
    "actions": {"4": "a large one"},
}
RAW = re.compile(r"coupon_cost|λ|lambda|fqe|certify|discounted|mixture|fold|member|\bnan\b|None", re.IGNORECASE)
BETTER = PolicyChange(gain=0.027, at_least=0.023, at_most=0.032, spend=-0.15)
LOSS = PolicyChange(gain=-0.09, at_least=-0.11, at_most=-0.07, spend=-0.15)
OPEN = PolicyChange(gain=0.027, at_least=-0.02, at_most=0.05, spend=-0.15)


def judged(kind: VerdictKind, **fields: Any) -> Verdict:
    given: dict[str, Any] = {"confidence": 0.975, "old": BETTER, "constants": None, "broken": (), "words": "…"}
    return Verdict(kind=kind, **{**given, **fields})


def page(
    verdict: Verdict | None = None, limits: int = 1, labels: dict[str, Any] | None = LABELS, **changes: Any
) -> PageOne:
    """Page one of the example, with another verdict and other figures; `changes` to the totals."""
    about = campaign(limits)
    if labels is not None:
        about["labels"] = labelled(limits) if labels is LABELS else labels
    evaluation = replace(
        example(limits).evaluated, verdict=verdict or judged(VerdictKind.SERVE), totals=totals(limits, **changes)
    )
    return PageOne(evaluation, Campaign.parse(about, Path("campaign.toml")))


def labelled(limits: int) -> dict[str, Any]:
    """The labels of a campaign with so many budgets."""
    return {**LABELS, "budgets": dict([*LABELS["budgets"].items()][:limits])}


def said(found: PageOne) -> str:
    """All of its words."""
    cells = [
        cell.text
        for each in (found.segments, found.budgets)
        if each is not None
        for row in each.rows
        for cell in row.cells
    ]
    parts = [found.kicker, found.headline, *found.sure, found.risk, *found.doubts, found.test, *cells]
    parts += [f"{card.what} {card.value} {card.note}" for card in found.cards]
    return " ".join([*parts, *(chart.words for chart in found.course)])


def test_the_decision_people_money_risk_and_day_one_are_told_first() -> None:
    found = page()
    assert found.headline == (
        "Switch to the new coupons. Expect about 27,500 more active days a week (+2.7%) for 550,000 yuan less (−15%)."
    )
    assert found.sure == ["Sure (97.5% each) of at least 23,000 more (+2.3%) and of staying within the limit."]
    assert found.risk == (
        "Approve a peak first: day one costs 634,000 yuan, 187,000 yuan more than now and 44% above the daily average "
        "you set. From day 4 on, a day costs less than that average."
    )
    assert [(card.what, card.value, card.note) for card in found.cards] == [
        ("Active days, a week", "1,027,600", "now 1,000,100 · +23,800 to +31,200"),
        ("Coupon money, a week", "3,040,000 yuan", "now 3,590,000 · −560,000 to −540,000"),
        ("Coupon money, day one", "634,000 yuan", "now 447,000 · +178,000 to +196,000 · falls to 298,000 by day 7"),
    ]
    assert found.kicker == (
        "habit · for the 200,000 users of this log · their first 7 days · "
        "at most 2 yuan of coupon money per user and day"
    )


def test_many_days_without_a_row_are_among_what_could_make_it_wrong() -> None:
    missed = "days between users' rows have no row"
    for share, told in ((0.02, False), (0.12, True)):
        found = page()
        days = MissingDays(share=share, words=f"{share:.0%} of the {missed}")
        checks = replace(found.evaluation.diagnostics, missing_days=days)
        doubts = replace(found, evaluation=replace(found.evaluation, diagnostics=checks)).doubts
        assert any(missed in doubt for doubt in doubts) == told


EVERY = {
    VerdictKind.SERVE: ("Switch to the new coupons.", "27,500 more active days"),
    VerdictKind.BEHIND_CAP: ("Switch to the new coupons, with a cap on the money.", "27,500 more active days"),
    VerdictKind.OLD_RULED_OUT: ("Switch to the new coupons: today's coupons break your limit.", "27,500 more"),
    VerdictKind.CONSTANT: ("Give everyone the same", "2 yuan for 60% of users, a large one for 40% of users"),
    VerdictKind.TEST: ("Test the new coupons on some users first.", "The estimate is about 27,500 more"),
    VerdictKind.PROMISING: ("Test the new coupons on some users first.", "The estimate is about 27,500 more"),
    VerdictKind.UNASSIGNED: ("Keep what you do today, or test the new coupons", "no gain could be shown"),
    VerdictKind.GAIN_UNKNOWN: ("Test the new coupons on some users first", "could not be measured"),
    VerdictKind.CHANCE: ("Keep what you do today", "may be chance"),
    VerdictKind.WORSE: ("Keep what you do today, unless saving is the aim.", "The new coupons would bring"),
    VerdictKind.LOSES: ("Keep what you do today, unless saving is the aim.", "The new coupons would bring"),
    VerdictKind.OVER: ("Do not switch: the new coupons would break your limit", ""),
    VerdictKind.NOT_CERTIFIED: ("Do not switch yet", "not proved that the new coupons keep your limit"),
    VerdictKind.REFUSED: ("Do not switch: this log cannot tell", ""),
}


@pytest.mark.parametrize("kind", list(VerdictKind))
def test_every_verdict_has_its_own_first_line_without_a_raw_name(kind: VerdictKind) -> None:
    broken = (BrokenLimit("coupon_cost", 2.557, "at most 2 per decision"),) if kind is VerdictKind.OLD_RULED_OUT else ()
    fixed = ((2.0, 0.6), (4.0, 0.4)) if kind is VerdictKind.CONSTANT else ()
    found = page(judged(kind, broken=broken, fixed=fixed))
    if kind is VerdictKind.REFUSED:
        reason = Reason(ReasonKind.STATE, {"found": "…", "way_out": "…"})
        certificate = replace(found.evaluation.certificate, reason=reason)
        found = replace(found, evaluation=replace(found.evaluation, certificate=certificate))
    begin, told = EVERY[kind]
    assert found.headline.startswith(begin)
    assert told in found.headline
    assert not RAW.search(said(found)), said(found)
    whose = "That is sure of the new coupons: what the same for everyone brings and costs is estimated."
    assert (whose in found.sure) == (kind is VerdictKind.CONSTANT)
    if broken:
        assert any("2.56 yuan of coupon money per user and day" in sentence for sentence in found.sure)


def test_a_limit_that_is_not_proved_is_told_in_the_words_of_the_campaign() -> None:
    line = example().evaluated.certificate.budgets[0]
    for changes, told in (
        (
            {"value": 1.98, "bound": 2.013},
            "Coupon money is estimated at 1.98 yuan per user and day, and may come to 2.013",
        ),
        ({"value": 1.98, "bound": None, "events": 3}, "too few events"),
        ({"value": None, "bound": None}, "Coupon money could not be measured."),
    ):
        found = page(judged(VerdictKind.NOT_CERTIFIED))
        broken = replace(line, kept=False, **changes)
        certificate = replace(found.evaluation.certificate, reason=Reason(ReasonKind.LIMIT), budgets=(broken,))
        found = replace(found, evaluation=replace(found.evaluation, certificate=certificate))
        assert told in " ".join(found.sure)
        assert not RAW.search(said(found))
        assert "staying within" not in said(found)


def test_what_is_sure_on_a_condition_is_told_with_it() -> None:
    found = page(judged(VerdictKind.PROMISING))
    certificate = replace(found.evaluation.certificate, reason=Reason(ReasonKind.UNASSIGNED))
    found = replace(found, evaluation=replace(found.evaluation, certificate=certificate))
    assert found.sure == [
        "It is not known how it was decided who was given what, so this log can prove nothing.",
        "If nothing but what the log tells drove it, sure (97.5%) of at least 23,000 more (+2.3%).",
    ]


def test_a_reward_that_is_negative_now_grows_where_it_becomes_less_so() -> None:
    found = page(reward=change(-100_000.0, -80_000.0, 1_000.0), at_least=15_000.0)
    assert "about 20,000 more active days a week (+20.0%)" in found.headline
    assert "(+15.0%)" in found.sure[0]
    nothing = page(reward=change(0.0, 5_000.0, 100.0), at_least=4_000.0, at_most=6_000.0)
    assert "about 5,000 more active days a week for" in nothing.headline
    assert "at least 4,000 more and" in nothing.sure[0]


def test_a_loss_is_told_as_one() -> None:
    less = change(1_000_100.0, 910_000.0, 3_700.0)
    found = page(judged(VerdictKind.LOSES, old=LOSS), reward=less, at_least=-95_000.0, at_most=-85_000.0)
    assert found.headline == (
        "Keep what you do today, unless saving is the aim. The new coupons would bring about 90,100 fewer active days "
        "a week (−9.0%) for 550,000 yuan less (−15%)."
    )
    assert found.sure[0].startswith("Sure (97.5% each) of at least 85,000 less (−8.5%)")
    assert found.risk.startswith("With the new coupons, day one would cost"), (
        "nobody is asked to approve what is not advised"
    )


def test_where_the_limit_rules_out_what_is_done_today_a_constant_may_do_as_well() -> None:
    broken = (BrokenLimit("coupon_cost", 2.557, "at most 2 per decision"),)
    found = page(judged(VerdictKind.OLD_RULED_OUT, broken=broken, old=OPEN, fixed=((2.5, 0.68), (4.0, 0.32))))
    assert found.headline.startswith("Change what you do today: it breaks your limit.")
    assert not missing(found.sure[-1], "2.5 yuan for 68% of users, a large one for 32% of users")


def test_only_the_total_that_is_named_is_called_sure() -> None:
    """The gain over all days may be certain, and that of the days that are named not."""
    found = page(at_least=-4_000.0)
    assert "of at least" not in found.sure[0].split("Sure is")[0]
    assert not missing(found.sure[0], "4,000 less (−0.4%)", "Sure is a gain of 2.3% over all days to come")
    assert not missing(page(judged(VerdictKind.TEST, old=OPEN), at_least=None).sure[0], "not known")
    assert "Sure is a gain" not in page(judged(VerdictKind.TEST, old=OPEN), at_least=-4_000.0).sure[0]


@pytest.mark.parametrize("kind", sorted(WITHHOLDING))
def test_a_refusal_says_why_and_shows_no_figure_of_the_policy(kind: ReasonKind) -> None:
    found = page(judged(VerdictKind.REFUSED))
    figures = {name: 1.0 if form else "…" for _, name, form, _ in Formatter().parse(WORDS[kind]) if name}
    certificate = replace(found.evaluation.certificate, reason=Reason(kind, figures))
    found = replace(found, evaluation=replace(found.evaluation, certificate=certificate))
    assert found.sure[0] == REFUSED[kind]
    assert (found.course, found.segments, found.budgets, found.risk) == ([], None, None, "")
    assert (found.cards[0].value, found.cards[0].note) == ("1,000,100", "now")
    assert "27,500" not in said(found)
    assert "1,027,600" not in said(found)


def test_a_refusal_for_want_of_propensities_does_not_say_that_decisions_were_too_few() -> None:
    found = page(judged(VerdictKind.REFUSED))
    reason = Reason(ReasonKind.NOT_CHECKED, {"found": Reason(ReasonKind.MISFIT)})
    certificate = replace(found.evaluation.certificate, reason=reason)
    said = replace(found, evaluation=replace(found.evaluation, certificate=certificate)).sure[0]
    assert not missing(said, "How it was decided who was given what")


def test_every_reason_to_refuse_has_its_sentence() -> None:
    assert set(REFUSED) == WITHHOLDING


def test_names_without_labels_are_made_readable_and_fit_into_a_sentence() -> None:
    found = page(labels=None)
    assert found.headline == (
        "Switch to the new choices. Expect active to rise by about 27,500 a week (+2.7%) for 550,000 yuan less (−15%)."
    )
    assert not RAW.search(said(found))
    assert "coupon cost" in said(found)


def test_a_log_with_one_row_per_user_has_no_days() -> None:
    about = campaign(1) | {"labels": {"reward": {"label": "sales", "unit": "yuan"}}}
    about["log"] = {**about["log"], "once": True}
    one = totals(days=1, by_day=(), first_day=change(447_000.0, 634_000.0, 9_000.0))
    evaluation = replace(example().evaluated, verdict=judged(VerdictKind.SERVE), totals=one, first_days=None)
    found = PageOne(evaluation, Campaign.parse(about, Path("campaign.toml")))
    assert found.headline == (
        "Switch to the new choices. Expect about 27,500 yuan more sales (+2.7%) for 550,000 yuan less (−15%)."
    )
    assert (found.course, found.risk, len(found.cards)) == ([], "", 2)
    assert "day" not in f"{found.kicker} {found.headline}".replace("per user and day", "")


def test_several_budgets_have_a_card_each_and_their_limits_in_the_first_line() -> None:
    found = page(limits=2)
    assert not missing(found.kicker, "at most 2 yuan of coupon money", "at least 0.52 users reached")
    assert [card.what for card in found.cards][-1] == "Users reached, a week"
    assert not missing(found.cards[-1].note, "700,000", "+51,000 to +69,000")


def test_without_an_old_policy_nothing_is_compared() -> None:
    alone = {name: replace(getattr(totals(), name), now=None, more=None) for name in ("reward", "money", "first_day")}
    verdict = judged(VerdictKind.GAIN_UNKNOWN, old=None)
    found = page(verdict, **alone, at_least=None, at_most=None, budgets=())
    assert "now" not in " ".join(card.note for card in found.cards)
    assert found.cards[0].value == "1,027,600"
    assert found.sure == ["Sure (97.5%) of staying within the limit."]


def test_a_small_change_with_a_large_error_is_not_rounded_away() -> None:
    assert "about 60 more active days" in page(reward=change(10_000.0, 10_060.0, 2_100.0)).headline
    assert "about 1.2 more active days" in page(reward=change(10.0, 11.2, 3.0)).headline


def test_money_without_a_unit_is_called_by_its_budget() -> None:
    about = campaign(1, unit="money") | {"labels": labelled(1)}
    found = replace(page(), campaign=Campaign.parse(about, Path("campaign.toml")))
    assert found.headline.endswith("for 550,000 less coupon money (−15%).")
    assert found.cards[1].value == "3,040,000"


def test_without_totals_the_decision_stands_alone() -> None:
    """As of a run that an earlier version evaluated, or one whose log carries no total."""
    found = page()
    alone = replace(found, evaluation=replace(found.evaluation, totals=None))
    assert alone.headline == "Switch to the new coupons."
    assert alone.sure == ["Sure (97.5%) of staying within the limit."]
    assert (alone.cards, alone.course, alone.segments, alone.budgets, alone.risk) == ([], [], None, None, "")
    assert alone.kicker == "habit · at most 2 yuan of coupon money per decision"


def test_totals_for_other_users_than_the_logs_say_so() -> None:
    assert not missing(page(users=1_200_000).kicker, "1,200,000 users", "a log of 200,000")


def test_who_gets_more_and_other_budgets_in_totals() -> None:
    found = page()
    assert found.segments is not None
    assert [[cell.text for cell in row.cells] for row in found.segments.rows] == [
        ["active lately", "97,200", "3.50 → 2.52", "−642,000 (−35%)", "−4,200 (−0.8%)"],
        ["not active lately", "102,800", "3.50 → 3.95", "+92,000 (+5.2%)", "+31,700 (+6.5%)"],
    ]
    assert found.budgets is not None
    assert [[cell.text for cell in row.cells] for row in found.budgets.rows] == [
        ["1.65", "2,280,000", "990,000", "−10,100"],
        ["2 (yours)", "3,040,000", "1,027,600", "+27,500"],
        ["2.75 (about today's money)", "3,590,000", "1,043,000", "+42,900"],
    ]
    assert not found.capped
    spent = replace(totals().budgets[0], limit=2.0, capped=True)
    found = page(budgets=(*totals().budgets, spent))
    assert found.budgets is not None
    rows = [row.cells[0].text for row in found.budgets.rows]
    assert rows == ["1.65", "2 (yours)", "2 (yours, behind a cap)", "2.75 (about today's money)"]
    assert "Behind a cap a server cannot overspend" in found.capped


def numbers_of(totals: DecisionTotals) -> Iterator[float]:
    """Every number of a typed result."""

    def within(value: Any) -> Iterator[float]:
        if isinstance(value, dict):
            for each in value.values():
                yield from within(each)
        elif isinstance(value, list):
            for each in value:
                yield from within(each)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield float(value)

    evaluation = replace(example().evaluated, totals=totals)
    yield from within(json.loads(json.dumps(evaluation.to_dict()["totals"])))


def test_every_amount_on_the_page_is_a_field_of_the_typed_result() -> None:
    """To the digits that are shown; shares are of two of them, and what is told of days of `first_days`."""
    found = page()
    known = list(numbers_of(totals()))
    texts = [found.headline, *found.sure, found.risk, *(f"{card.value} {card.note}" for card in found.cards)]
    amounts = re.findall(r"\d{1,3}(?:,\d{3})+", " ".join(texts))
    assert len(amounts) > 15
    for amount in amounts:
        value = float(amount.replace(",", ""))
        assert any(abs(abs(x) - value) <= 0.005 * value for x in known), amount


def test_labels_of_lines_do_not_overlap_and_values_are_told_to_screen_readers() -> None:
    near = [
        Line(name, name, [Total(value=v), Total(value=1.51e5 + v / 1e4)]) for name, v in (("old", 1e5), ("new", 2e5))
    ]
    chart = Lines("Active days by day", near, (160_000.0, "your limit, on average"))
    heights = [float(y) for y in re.findall(r'text-anchor="start">|y="([\d.]+)" text-anchor="start"', chart.svg) if y]
    assert abs(heights[0] - heights[1]) >= APART
    assert not missing(chart.words, "100k on day 1", "200k on day 1", "your limit, on average: 160k")
    assert "<script" not in Lines("<script>", near).svg


# In a real browser; what all pages promise is in test_layout.py.

PLAN = PlannedTest(
    part=0.5,
    lift=0.011,
    days=7,
    users_per_arm=9_200,
    clusters_per_arm=None,
    log_users=200_000,
    power=0.8,
    alpha=0.05,
    enough=True,
    words="A test of 9,200 users a group.",
    command="outlay experiment plan /home/me/campaigns/of/this/year/demo-campaign/campaign.toml",
    placeholders="START is the date of its first day.",
)


def whole(budgets: int = 1) -> str:
    """The page of the example with labels, a planned test and every part of page one."""
    results: RunResults = evaluated(example(budgets), verdict=judged(VerdictKind.SERVE), test=PLAN)
    about = campaign(budgets) | {"labels": labelled(budgets)}
    return render(replace(results, run=run(**{**results.run.manifest, "campaign": about})))


def test_every_figure_is_there_without_scripts() -> None:
    html = re.sub(r"<script.*?</script>", "", whole(2), flags=re.DOTALL)
    for place in re.findall(r'<div class="plot" id="[^"]*".*?</figure>', html, re.DOTALL):
        assert "<svg" in place
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids)), "a clip of one figure would cut another"


def test_labels_stand_where_names_of_columns_would() -> None:
    """But for settings, which are those of the file."""
    page = re.sub(r"<(script|style|code|svg)\b.*?</\1>", " ", whole(2), flags=re.DOTALL)
    shown = re.sub(r"<[^>]*>", " ", page.partition("Settings and provenance")[0])
    assert not re.search(r"\b(coupon_cost|inactive|active(?! days| lately))\b", shown)
