"""Which orderings hold: by one kind of number for both sides, within the limits, proven by more than one seed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outlay.comparing.results import MethodRow, SeedMean
from outlay.core.campaign import BudgetLimit
from paper_orderings import Ordering, count, orderings

COST = BudgetLimit(name="cost", limit=2.0)


def figure(value: float, sd: float | None = 0.01, truth: float | None = None) -> SeedMean:
    return SeedMean(value, sd=sd, truth=truth, truth_sd=None if truth is None else sd)


def row(name: str, value: float, sd: float | None = 0.01, **more: Any) -> MethodRow:
    """A method by its name; `truth` and `cost` go into its figures, for 1, 3 and 7 days alike."""
    truth, cost, control = more.get("truth"), more.get("cost", 1.9), more.get("control", "total")
    figures = {f"reward@{k}": figure(value, sd, truth) for k in (1, 3, 7)}
    figures["cost"] = SeedMean(cost, sd=sd, truth=more.get("true_cost", cost if truth else None))
    oracle, _, rest = name.partition(", ")
    if "label" in rest:
        return MethodRow(name, "two-stage", control, oracle.lower(), None, int(rest[0]), figures)
    return MethodRow(name, "rl", control, oracle.lower(), rest, None, figures)


def by_claim(
    rows: list[MethodRow], days: tuple[int, ...] = (7,), limits: tuple[BudgetLimit, ...] = (COST,)
) -> dict[str, Ordering]:
    return {one.claim: one for one in orderings(rows, limits, days)}


def test_a_difference_within_two_deviations_is_a_tie() -> None:
    said = by_claim(
        [
            row("DeepFM, 1-day label", 5.0),
            row("BCQ, aim-greedy", 5.2),
            row("BCQ, single-best", 5.19),
            row("BCQ, aim-mean", 5.3),
            row("BCQ, bisection", 5.1),
        ]
    )
    assert said["BCQ, aim-greedy ≥ BCQ, bisection"].verdict == "holds"
    assert said["looking ahead above 1-day labels over 7 days"].verdict == "holds"
    assert said["BCQ, aim-greedy ≥ BCQ, single-best"].verdict == "a tie"
    assert said["BCQ, single-best ≥ BCQ, aim-mean"].verdict == "does not hold"
    assert all(one.proven for one in said.values())


def test_the_report_days_decide_which_claims_are_made_and_the_last_one_orders_the_rules() -> None:
    rows = [
        row("DeepFM, 1-day label", 5.0),
        row("DeepFM, 3-day label", 5.0),
        row("DIN, 7-day label", 5.0),
        row("BCQ, lp", 5.2),
        row("EDRR, lp", 5.1),
    ]
    found = orderings(rows, [], (3, 1))
    assert [(one.claim, one.verdict) for one in found] == [
        ("looking ahead below 1-day labels over 1 day", "does not hold"),
        ("looking ahead below 7-day labels over 1 day", "does not hold"),
        ("looking ahead above 1-day labels over 3 days", "holds"),
        ("looking ahead above 7-day labels over 3 days", "holds"),
        ("BCQ, lp ≥ EDRR, lp", "holds"),
    ]
    assert found[-1].target == "reward@3"


def test_the_frontier_is_held_against_aim_greedy_of_its_oracle_under_the_limits_only() -> None:
    def frontier(name: str, value: float, **more: Any) -> MethodRow:
        made = row(f"frontier, {name}", value, **more)
        return replace(made, oracle={"counted": "tabular"}.get(name, name), rule="frontier")

    rows = [
        row("BCQ, aim-greedy", 5.1),
        row("EDRR, aim-greedy", 5.0),
        row("DeepFM, 1-day label", 4.9),
        row("BCQ, aim-greedy, re-solved", 5.15),
        row("EDRR, aim-greedy, re-solved", 5.05),
        frontier("bcq", 5.2),
        frontier("edrr", 4.95),
        frontier("counted", 5.3),
    ]
    found = orderings(rows, [COST], (7,))
    assert [(one.claim, one.verdict) for one in found] == [
        ("looking ahead above 1-day labels over 7 days", "holds"),
        ("BCQ, aim-greedy ≥ EDRR, aim-greedy", "holds"),
        ("frontier, bcq ≥ BCQ, aim-greedy, re-solved", "holds"),
        ("frontier, edrr ≥ EDRR, aim-greedy, re-solved", "does not hold"),
        ("frontier, counted ≥ frontier, bcq", "holds"),
        ("frontier, counted ≥ frontier, edrr", "holds"),
    ]
    assert found[0].first == "frontier, counted", "it looks ahead too"
    free = [replace(one, control="immediate") for one in rows]
    assert [one.claim for one in orderings(free, [COST], (7,))] == [
        "looking ahead above 1-day labels over 7 days",
        "BCQ, aim-greedy ≥ EDRR, aim-greedy",
    ]
    alone = by_claim([frontier("bcq", 5.2), row("EDRR, aim-greedy, re-solved", 5.0)])
    assert not alone, "no pair of one oracle"


def test_two_true_values_decide_even_against_the_estimates() -> None:
    said = by_claim([row("BCQ, lp", 5.0, truth=5.3), row("EDRR, lp", 5.2, truth=5.1)])["BCQ, lp ≥ EDRR, lp"]
    assert (said.verdict, said.kind, said.first_value, said.second_value) == ("holds", "truth", 5.3, 5.1)
    assert "true active in 7 days" in said.sentence("active")


def test_truth_on_one_side_only_is_not_mixed_with_an_estimate() -> None:
    """By the truth of the one against the estimate of the other it would hold."""
    said = by_claim([row("BCQ, lp", 5.0, truth=5.5), row("EDRR, lp", 5.2)])["BCQ, lp ≥ EDRR, lp"]
    assert (said.verdict, said.kind, said.first_value, said.second_value) == ("does not hold", "value", 5.0, 5.2)
    assert "estimated active in 7 days" in said.sentence("active")
    assert "true" not in said.sentence("active")


def test_the_best_of_a_side_is_sought_among_numbers_of_one_kind() -> None:
    """DIN has no truth, so its side and the other are ranked by the estimate, whatever the truths are."""
    rows = [
        row("BCQ, lp", 5.0, truth=5.5),
        row("EDRR, lp", 5.1, truth=4.0),
        row("DeepFM, 7-day label", 4.9, truth=9.0),
        row("DIN, 7-day label", 4.95),
    ]
    said = by_claim(rows)["looking ahead above 7-day labels over 7 days"]
    assert (said.first, said.second, said.kind, said.verdict) == ("EDRR, lp", "DIN, 7-day label", "value", "holds")


def test_the_best_keeps_the_limit_where_one_holds() -> None:
    rich: dict[str, Any] = {"cost": 2.5}
    rows = [row("BCQ, lp", 6.0, **rich), row("EDRR, lp", 5.1), row("DIN, 7-day label", 5.0)]
    said = by_claim(rows)
    assert said["looking ahead above 7-day labels over 7 days"].first == "EDRR, lp"
    assert said["BCQ, lp ≥ EDRR, lp"].over == ("BCQ, lp",)
    assert said["BCQ, lp ≥ EDRR, lp"].sentence("active").endswith("in 7 days; BCQ, lp breaks a limit).")
    beyond = by_claim([row("BCQ, lp", 6.0, **rich), row("DIN, 7-day label", 5.0)])
    assert beyond["looking ahead above 7-day labels over 7 days"].over == ("BCQ, lp",), "the only one, and it is told"
    free = [MethodRow(**{**vars(one), "control": "immediate"}) for one in rows]
    said = by_claim(free)
    assert said["looking ahead above 7-day labels over 7 days"].first == "BCQ, lp", "no limit holds under this control"
    assert said["BCQ, lp ≥ EDRR, lp"].over == ()


def test_a_limit_is_judged_by_the_same_kind_of_number_and_a_thousandth_of_it_is_nothing() -> None:
    rows = [row("BCQ, lp", 6.0, truth=6.0, cost=2.5, true_cost=2.0019), row("EDRR, lp", 5.1, truth=5.1)]
    assert by_claim(rows)["BCQ, lp ≥ EDRR, lp"].over == ()
    rows = [row("BCQ, lp", 6.0, truth=6.0, cost=1.9, true_cost=2.0021), row("EDRR, lp", 5.1, truth=5.1)]
    assert by_claim(rows)["BCQ, lp ≥ EDRR, lp"].over == ("BCQ, lp",)


@pytest.mark.parametrize("truth", [None, 5.2])
def test_one_seed_proves_nothing(truth: float | None) -> None:
    said = by_claim([row("BCQ, lp", 5.2, None, truth=truth), row("EDRR, lp", 5.1, None, truth=truth and 5.1)])
    one = said["BCQ, lp ≥ EDRR, lp"]
    assert (one.verdict, one.proven) == ("holds", False)
    assert one.sentence("active").startswith(
        "the campaign's limits: BCQ, lp ≥ EDRR, lp: holds in one seed, which proves nothing (BCQ, lp 5.2000 against "
    )


def test_what_is_withheld_is_not_judged() -> None:
    gone = row("BCQ, lp", 5.0)
    gone.figures["reward@7"] = SeedMean()
    assert orderings([gone, row("EDRR, lp", 5.1), row("DIN, 1-day label", 5.0)], [COST], (7,))[0].first == "EDRR, lp"
    assert "BCQ, lp ≥ EDRR, lp" not in by_claim([gone, row("EDRR, lp", 5.1)])
    assert orderings([], [COST], (7,)) == []


def test_orderings_with_some_refused_seeds_are_counted_apart() -> None:
    rows = [row("BCQ, lp", 5.2), row("EDRR, lp", 5.1), row("DDQN, lp", 5.1, None)]
    assert count(orderings(rows, [COST], (7,))) == (
        "Orderings that hold: 1; ties: 0; that do not hold: 0. "
        "In one seed, orderings that hold: 0; ties: 1; that do not hold: 0"
    )
