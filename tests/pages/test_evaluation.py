"""What the page says of the evaluation: which estimators to believe, what the certificate promises, what failed."""

from __future__ import annotations

import dataclasses

import pytest
from report_examples import BUDGETS, CLIPPED, FEW, NO_PATH, campaign, certified, evaluated, example, run

from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.evaluating.check_result import CheckResult
from outlay.pages import evaluation_charts, evaluation_words, tables
from outlay.pages.results import RunResults
from outlay.pages.tables import Cell, Table


def reasons(content: RunResults) -> list[str]:
    return evaluation_words.reasons(content.evaluated, content.campaign)


def test_the_certificate_says_each_bound_beside_its_limit() -> None:
    assert evaluation_words.certificate_finding(example()) == (
        "With 97.5% confidence coupon_cost is at most 1.976 yuan per decision (inside the limit of 2)"
    )


def test_a_certificate_of_one_mixture_promises_nothing_about_others() -> None:
    assert evaluation_words.guarantee(example().evaluated.certificate) == (
        "the chance that this mixture is certified and yet breaks a limit is at most 2.5%."
    )


def test_a_certificate_of_a_frontier_promises_every_mixture_and_budget() -> None:
    said = evaluation_words.guarantee(certified(example(), policies=65).evaluated.certificate)
    assert said.startswith("the bounds hold for 65 policies together, and so for every mixture of them and for every")
    assert "budget of the curve, at the cost of one look" in said
    assert "at most 2.5%" in said
    assert "this mixture" not in said


def test_the_gain_is_said_with_its_lower_bound() -> None:
    assert evaluation_words.gain(example()) == (
        "Beyond the old policy it brings +0.021 (active per decision, discounted mean); with 97.5% confidence "
        "at least +0.012."
    )
    per_user = run(campaign=campaign(1) | {"budget": [BUDGETS[0] | {"per": "user"}]})
    loss = dataclasses.replace(certified(example(), gain=-0.1, gain_bound=-0.3), run=per_user)
    assert "brings −0.10 (active, total of 7 days); with 97.5% confidence at least −0.30" in evaluation_words.gain(loss)
    assert "could not be measured" in evaluation_words.gain(certified(example(), gain=None))


def test_segments_are_said_by_the_size_of_their_change_and_chance_is_named() -> None:
    assert evaluation_words.segments_finding(example()) == (
        "Gain over the old policy in active, total of 7 days: inactive +0.34; active −0.05 (it may be none)"
    )


def test_where_no_segment_has_a_number_no_gain_is_said() -> None:
    only = evaluated(example(), segments=tuple(e for e in example().evaluated.segments if e.segment == "new"))
    assert evaluation_words.segments_finding(only) == "No gain by segment can be given"
    made = tables.segments(only.evaluated, only.campaign)
    assert [table.rows[0].cells[2:] for table in made] == [(Cell("–"),) * 3] * 2


def test_the_longest_total_is_told_by_those_that_can_be_relied_on() -> None:
    assert evaluation_words.estimates_finding(example()) == (
        "active, total of 7 days: 5.09 by fqe and 5.09 by mis; dr and snpdis cannot tell"
    )


def test_where_nothing_can_be_relied_on_no_figure_is_said() -> None:
    doubted = tuple(dataclasses.replace(e, recommended=False) for e in example().evaluated.estimates)
    assert evaluation_words.estimates_finding(evaluated(example(), estimates=doubted)) == "No estimate can be relied on"


def test_every_reason_is_said_once_with_all_that_it_is_about() -> None:
    assert reasons(example(2)) == [
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
    assert reasons(evaluated(example(), estimates=tuple(estimates))) == [
        "fqe is not recommended for active per decision, discounted mean and active, total of 7 days: it is doubted."
    ]
    both = [*estimates, dataclasses.replace(estimates[0], target="coupon_cost")]
    assert (
        "for discounted means and active, total of 7 days:" in reasons(evaluated(example(), estimates=tuple(both)))[0]
    )


def by_estimator(content: RunResults) -> Table:
    return tables.by_estimator(content.evaluated, content.campaign)


def test_side_by_side_has_a_column_for_each_estimator_and_marks_what_is_doubted() -> None:
    table = by_estimator(example())
    assert [column.head for column in table.columns] == ["quantity", "fqe", "mis", "dr", "snpdis"]
    rows = {row.cells[0].text: row.cells[1:] for row in table.rows}
    fitted = Cell("2.181", "2.163 to 2.199", "2.181 ±0.018")
    doubted = Cell("1.963", "1.663 to 2.263", "1.963 ±0.300", look="doubted")
    assert rows["active, total of 3 days"] == (fitted, fitted, doubted, doubted)
    assert rows["active, total of 7 days"][2] == Cell("–"), "a withheld number is not marked as doubted"
    assert rows["coupon_cost, yuan per decision"][2] == Cell("–"), "nor one that nobody tried"
    assert (fitted.line, doubted.line) == ("2.181 ±0.018", "1.963 ±0.300*"), "as a terminal shows them"


def test_the_table_of_results_marks_what_is_doubted_and_what_is_certified() -> None:
    content = example(2)
    doubted = tuple(
        dataclasses.replace(e, caution=Reason(ReasonKind.DOUBTED, {"found": "for a reason"}))
        if e.target == "reward@7" and e.policy == "constants"
        else e
        for e in content.evaluated.beside
    )
    table = tables.policies(evaluated(content, beside=doubted).evaluated, content.campaign)
    assert [(column.head, column.note) for column in table.columns[3:6]] == [
        ("active", "total of 7 days"),
        ("coupon_cost", "at most 2 yuan per decision"),
        ("reach", "at least 0.52 per decision"),
    ]
    looks = {row.cells[0].text: [cell.look for cell in row.cells[3:]] for row in table.rows}
    assert looks["best constant mixture"] == ["doubted", "", "", ""]
    assert looks["aim-greedy, as served"] == ["", "", "", "yes"]
    assert [row.look for row in table.rows[:3]] == ["old", "constant", "chosen"]


def test_the_table_of_the_certificate_has_the_margin_of_a_run_only() -> None:
    content = example()
    assert [cell.text for cell in content.certificate.rows[0].cells] == [
        "coupon_cost",
        "at most 2 yuan per decision",
        "0.031",
        "1.958",
        "1.976",
        "yes",
    ]
    bare = tables.certificate(content.evaluated, content.campaign)
    assert [column.head for column in bare.columns] == ["budget", "limit", "estimate", "97.5% bound", "kept"]


def test_the_figures_take_the_longest_total_and_the_budgets_first() -> None:
    shown = [estimates[0].target for estimates in evaluation_charts.compared(example(2))]
    assert shown == ["reward@7", "coupon_cost", "reach", "reward"]


def test_an_estimator_without_a_number_has_its_place_in_the_figure() -> None:
    content = example()
    week = next(each for each in evaluation_charts.compared(content) if each[0].target == "reward@7")
    spec = evaluation_charts.estimators(content, week)
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
    checks = {name: CheckResult(ok=ok, words="") for name, ok in zip(names, oks, strict=True)}
    assert evaluation_words.evidence_finding(checks) == said


def test_what_the_log_never_gave_is_named_by_segment() -> None:
    assert evaluation_words.unseen(example().evaluated) == [
        "In segment active 0.31% of what the policy gives was never given by the log: 5.5, 6."
    ]


def test_a_certificate_stands_for_one_policy_unless_it_says_otherwise() -> None:
    assert example().evaluated.certificate.policies == 1
