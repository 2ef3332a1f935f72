"""What the page says of the evaluation: which estimators to believe, what the certificate promises, what failed."""

from __future__ import annotations

import dataclasses

import pytest
from report_examples import BUDGETS, CLIPPED, FEW, NO_PATH, campaign, certified, evaluated, example, run

from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.evaluating.finding import Finding
from outlay.pages import evidence_charts, evidence_tables, evidence_words


def test_the_certificate_says_each_bound_beside_its_limit() -> None:
    assert evidence_words.certificate_finding(example()) == (
        "With 97.5% confidence coupon_cost is at most 1.976 yuan per decision (inside the limit of 2)"
    )


def test_a_certificate_of_one_mixture_promises_nothing_about_others() -> None:
    assert evidence_words.guarantee(example().evaluated.certificate) == (
        "the chance that this mixture is certified and yet breaks a limit is at most 2.5%."
    )


def test_a_certificate_of_a_frontier_promises_every_mixture_and_budget() -> None:
    said = evidence_words.guarantee(certified(example(), policies=65).evaluated.certificate)
    assert said.startswith("the bounds hold for 65 policies together, and so for every mixture of them and for every")
    assert "budget of the curve, at the cost of one look" in said
    assert "at most 2.5%" in said
    assert "this mixture" not in said


def test_the_gain_is_said_with_its_lower_bound() -> None:
    assert evidence_words.gain(example()) == (
        "Beyond the old policy it brings +0.021 (active per decision, discounted mean); with 97.5% confidence "
        "at least +0.012."
    )
    per_user = run(campaign=campaign(1) | {"budget": [BUDGETS[0] | {"per": "user"}]})
    loss = dataclasses.replace(certified(example(), gain=-0.1, gain_bound=-0.3), run=per_user)
    assert "brings −0.10 (active, total of 7 days); with 97.5% confidence at least −0.30" in evidence_words.gain(loss)
    assert "could not be measured" in evidence_words.gain(certified(example(), gain=None))


@pytest.mark.parametrize(("value", "text"), [(0.5, "+0.50"), (-0.5, "−0.50"), (0.001, "0.00"), (-0.001, "0.00")])
def test_a_difference_that_rounds_to_zero_has_no_sign(value: float, text: str) -> None:
    assert evidence_words.signed(value, 2) == text


def test_segments_are_said_by_the_size_of_their_change_and_chance_is_named() -> None:
    assert evidence_words.segments_finding(example()) == (
        "Gain over the old policy in active, total of 7 days: inactive +0.34; active −0.05 (it may be none)"
    )


def test_where_no_segment_has_a_number_no_gain_is_said() -> None:
    only = evaluated(example(), segments=tuple(e for e in example().evaluated.segments if e.segment == "new"))
    assert evidence_words.segments_finding(only) == "No gain by segment can be given"
    assert [table.rows[0][1] for _, table in evidence_tables.segments(only)] == [(("–", "", True),) * 3] * 2


def test_the_longest_total_is_told_by_those_that_can_be_relied_on() -> None:
    assert evidence_words.estimates_finding(example()) == (
        "active, total of 7 days: 5.09 by fqe and 5.09 by mis; dr and snpdis cannot tell"
    )


def test_where_nothing_can_be_relied_on_no_figure_is_said() -> None:
    doubted = tuple(dataclasses.replace(e, recommended=False) for e in example().evaluated.estimates)
    assert evidence_words.estimates_finding(evaluated(example(), estimates=doubted)) == "No estimate can be relied on"


def test_every_reason_is_said_once_with_all_that_it_is_about() -> None:
    assert evidence_words.reasons(example(2)) == [
        f"dr is not recommended for totals of 3 days: {FEW}.",
        f"snpdis is not recommended for totals of 3 days: {CLIPPED}.",
        f"dr and snpdis give no number for totals of 7 days: {NO_PATH}.",
    ]


def test_a_reason_for_some_quantities_names_them() -> None:
    estimates = [
        Estimate(
            policy="mixture",
            estimator="fqe",
            target=target,
            value=1.0,
            caution=Reason(ReasonKind.DOUBTED, {"found": "it is doubted"}),
        )
        for target in ("reward", "reward@7")
    ]
    assert evidence_words.reasons(evaluated(example(), estimates=tuple(estimates))) == [
        "fqe is not recommended for active per decision, discounted mean and active, total of 7 days: it is doubted."
    ]
    both = [*estimates, dataclasses.replace(estimates[0], target="coupon_cost")]
    assert (
        "for discounted means and active, total of 7 days:"
        in evidence_words.reasons(evaluated(example(), estimates=tuple(both)))[0]
    )


def test_side_by_side_has_a_column_for_each_estimator_and_marks_what_is_doubted() -> None:
    table = evidence_tables.side_by_side(example(), example().evaluated.estimates)
    assert table.heads == ("fqe", "mis", "dr", "snpdis")
    rows = {about[0]: cells for about, cells in table.rows}
    assert rows["active, total of 3 days"] == (
        ("2.181", "2.163 to 2.199", True),
        ("2.181", "2.163 to 2.199", True),
        ("1.963", "1.663 to 2.263", False),
        ("1.963", "1.663 to 2.263", False),
    )
    assert rows["active, total of 7 days"][2] == ("–", "", True), "a withheld number is not marked as doubted"
    assert rows["coupon_cost, yuan per decision"][2] == ("–", "", True), "nor one that nobody tried"


def test_the_figures_take_the_longest_total_and_the_budgets_first() -> None:
    shown = [estimates[0].target for estimates in evidence_tables.compared(example(2))]
    assert shown == ["reward@7", "coupon_cost", "reach", "reward"]


def test_an_estimator_without_a_number_has_its_place_in_the_figure() -> None:
    content = example()
    week = next(each for each in evidence_tables.compared(content) if each[0].target == "reward@7")
    spec = evidence_charts.estimators(content, week)
    rows = (
        [row for values in spec["datasets"].values() for row in values]
        if "datasets" in spec
        else [row for layer in spec["layer"] for row in layer.get("data", spec.get("data", {}))["values"]]
    )
    absent = {row["name"]: (row["label"], row["why"]) for row in rows if row.get("value") is None and "name" in row}
    assert absent == {"dr": ("no number", NO_PATH.words), "snpdis": ("no number", NO_PATH.words)}


@pytest.mark.parametrize(
    ("oks", "said"),
    [
        ((True, True, True, True, True), "Every check was passed"),
        ((True, True, True, True, None), "Every check made was passed; not checked: agreement"),
        ((True, False, True, True, None), "Not passed: reproduction"),
        ((False, False, None, True, None), "Not passed: propensities and reproduction"),
    ],
)
def test_the_heading_names_what_was_not_passed(oks: tuple[bool | None, ...], said: str) -> None:
    names = example().evaluated.diagnostics.checks
    checks = {name: Finding(ok=ok, words="") for name, ok in zip(names, oks, strict=True)}
    assert evidence_words.evidence_finding(checks) == said


def test_what_the_log_never_gave_is_named_by_segment() -> None:
    assert evidence_words.unseen(example()) == [
        "In segment active 0.310% of what the policy gives was never given by the log: 5.5, 6."
    ]


@pytest.mark.parametrize(("share", "text"), [(0.0, "0%"), (1.0, "100%"), (0.153, "15.3%"), (0.00011, "0.0110%")])
def test_a_share_may_be_tiny_or_all(share: float, text: str) -> None:
    assert evidence_words.share(share) == text


def test_a_certificate_stands_for_one_policy_unless_it_says_otherwise() -> None:
    assert example().evaluated.certificate.policies == 1
