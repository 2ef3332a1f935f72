"""Estimators that assume less: a trifle and chance are no contradiction, more is, and its words name the worst."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import ArrayLike

from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.agreement import NEGLIGIBLE, ONE_STEP, Agreement, agree
from outlay.estimators.joint import Joint
from outlay.ops.intervals import BY_CHANCE

USERS = 400
THIN = Reason(ReasonKind.UNSUPPORTED, {"found": "thin"})


def joint(
    values: dict[str, float], spread: float = 1.0, seed: int = 0, withheld: Mapping[str, Reason] | None = None
) -> Joint:
    """Influences of this spread, so that errors are spread/20."""
    psi = np.random.default_rng(seed).normal(size=(USERS, len(values)))
    psi = (psi - psi.mean(axis=0)) / psi.std(axis=0, ddof=1)
    return Joint(
        targets=tuple(values),
        value=np.array(list(values.values())),
        influence=spread * psi,
        mass=np.ones((USERS, len(values))),
        withheld=tuple((withheld or {}).get(name) for name in values),
    )


def none(joint: Joint) -> list[Reason | None]:
    return [None] * len(joint.targets)


def behind(found: Agreement) -> Reason:
    """Why nothing was checked."""
    reason = found.finding.figures["found"]
    assert isinstance(reason, Reason)
    return reason


def pair(difference: float, error: float = 0.05) -> tuple[Joint, Joint]:
    """A fitted value of 1, and another whose difference to it has this error."""
    fitted = joint({"reward": 1.0})
    extra = joint({"reward": 0.0}, 20 * error, seed=1)
    return fitted, Joint(
        ("reward",), np.array([1 + difference]), fitted.influence + extra.influence, fitted.mass, (None,)
    )


def test_four_errors_of_the_difference_and_a_hundredth_of_the_value_are_tolerated() -> None:
    most = BY_CHANCE * 0.05 + NEGLIGIBLE
    for sign in (1, -1):
        fitted, other = pair(sign * most * 0.99)
        assert agree(fitted, {"dr": (other, none(other))}).ok
        fitted, other = pair(sign * most * 1.01)
        found = agree(fitted, {"dr": (other, none(other))})
        assert not found.ok
        (one,) = found.differences
        assert one.difference == pytest.approx(sign * most * 1.01)
        assert one.std_error == pytest.approx(0.05)
        assert one.tolerance == pytest.approx(most)


def test_the_error_is_that_of_the_pair_not_of_two_strangers() -> None:
    """Values that move together by user leave little room; both alone have errors far larger than the difference."""
    fitted, other = pair(0.1, error=0.005)
    assert fitted.std_error[0] == pytest.approx(0.05)
    assert not agree(fitted, {"mis": (other, none(other))}).ok


def test_the_worst_comparison_is_named_with_both_figures() -> None:
    fitted = joint({"reward": 1.0, "cost@3": 10.0, "decisions": 1.0})
    mis = joint({"reward": 1.01, "cost@3": 8.0, "decisions": 5.0}, 0.5, seed=1)
    dr = joint({"reward": 1.2, "cost@3": 4.0, "decisions": 5.0}, 0.5, seed=2)
    found = agree(fitted, {"dr": (dr, none(dr)), "mis": (mis, none(mis))})
    assert found.finding.kind is ReasonKind.CONTRADICTED
    figures = found.finding.figures
    assert (figures["estimator"], figures["target"]) == ("dr", "cost@3")
    assert (figures["other"], figures["fitted"]) == (4.0, 10.0)
    assert (figures["beyond"], figures["count"]) == (2, 4)  # decisions are no estimate
    assert {(d.estimator, d.target) for d in found.differences} == {
        (name, target) for name in ("dr", "mis") for target in ("reward", "cost@3")
    }
    assert [d.target for d in found.differences if not d.ok] == ["cost@3", "cost@3"]
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["ok"] is False


@pytest.mark.parametrize("caution", [[THIN], [None]])
def test_what_is_not_relied_on_or_withheld_contradicts_nothing(caution: list[Reason | None]) -> None:
    fitted = joint({"reward": 1.0})
    other = joint({"reward": 9.0}, withheld=None if caution[0] else {"reward": THIN})
    found = agree(fitted, {"dr": (other, caution)})
    assert (found.ok, found.differences) == (True, ())
    assert found.finding == Reason(ReasonKind.NOT_COMPARED, {"found": Reason(ReasonKind.NO_OTHER)})
    withheld = joint({"reward": np.nan}, withheld={"reward": THIN})
    assert agree(withheld, {"dr": (fitted, none(fitted))}).differences == ()
    assert agree(fitted, {}).ok


def test_one_user_alone_has_no_error_and_is_no_comparison() -> None:
    def alone(value: ArrayLike) -> Joint:
        return Joint(("reward",), np.atleast_1d(value).astype(float), np.zeros((1, 1)), np.ones((1, 1)), (None,))

    found = agree(alone(1.0), {"dr": (alone(3.0), [None])})
    assert (found.ok, found.differences) == (True, ())
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_same_number_by_other_sums_is_no_check() -> None:
    """Reweighted by counted states alone, an estimate is the fitted one; but a sure difference is one."""
    fitted = joint({"reward": 1.0, "cost": 2.0})
    again = replace(fitted, value=fitted.value * (1 + 1e-12), influence=fitted.influence * (1 + 1e-9))
    found = agree(fitted, {"mis": (again, none(again))})
    assert (found.ok, found.differences) == (True, ())
    assert found.finding.kind is ReasonKind.NOT_COMPARED
    moved = replace(fitted, value=fitted.value + np.array([0.5, 0.0]))
    found = agree(fitted, {"mis": (moved, none(moved))})
    assert [d.target for d in found.differences] == ["reward"]
    assert not found.ok


def test_agreement_is_told_with_its_number() -> None:
    fitted, other = pair(0.01)
    found = agree(fitted, {"dr": (other, none(other))})
    assert found.finding == Reason(ReasonKind.AGREES, {"count": 1, "less": 0})
    known = agree(fitted, {"dr": (other, none(other)), "mis": (other, none(other))}, assume_less=("dr",))
    assert known.finding == Reason(ReasonKind.AGREES, {"count": 2, "less": 1})


def steps(difference: float, error: float, users: int = USERS) -> Joint:
    """What single steps make of a total of 1, less that; `users` carry it."""
    found = joint({"reward@3": difference}, 20 * error, seed=2)
    return replace(found, mass=np.where(np.arange(USERS)[:, None] < users, 1.0, 0.0))


@pytest.mark.parametrize(
    ("own", "error", "ok"),
    [(0.05, 0.07, True), (0.05, 0.08, False), (0.001, 0.019, True), (0.001, 0.021, False)],
    ids=["as sure", "less sure", "precise", "vague"],
)
def test_single_steps_confirm_if_their_error_is_small_or_like_the_fitted_ones(
    own: float, error: float, ok: bool
) -> None:
    fitted = joint({"reward@3": 1.0}, 20 * own)
    found = agree(fitted, {}, steps(0.0, error))
    assert found.ok is ok
    assert found.reason == (None if ok else found.finding)
    if ok:
        assert found.finding == Reason(ReasonKind.AGREES, {"count": 1, "less": 0})
    else:
        figures = {"target": "reward@3", "error": pytest.approx(error), "claimed": pytest.approx(own)}
        assert found.finding.kind is ReasonKind.NOT_CHECKED
        assert behind(found).kind is ReasonKind.IMPRECISE
        assert behind(found).figures == figures
    assert agree(fitted, {}).ok  # where states are counted nothing has to confirm it


def test_what_single_steps_contradict_is_contradicted_however_vague_they_are() -> None:
    fitted = joint({"reward@3": 1.0}, 1.0)
    found = agree(fitted, {}, steps(0.6, 0.1))
    assert not found.ok
    assert found.finding.kind is ReasonKind.CONTRADICTED
    figures = found.finding.figures
    assert (figures["estimator"], figures["target"]) == (ONE_STEP, "reward@3")
    assert (figures["other"], figures["fitted"], figures["errors"]) == pytest.approx((1.6, 1.0, 6.0))


def test_few_users_behind_single_steps_confirm_nothing_and_another_estimate_does_not_help() -> None:
    fitted, other = pair(0.01)
    fitted = replace(fitted, targets=("reward@3",))
    other = replace(other, targets=("reward@3",))
    found = agree(fitted, {"dr": (other, none(other))}, steps(0.0, 0.001, users=99))
    assert not found.ok
    assert found.finding.kind is ReasonKind.NOT_CHECKED
    assert behind(found).kind is ReasonKind.FEW_STEPS
    assert behind(found).figures["found"] == Reason(ReasonKind.FEW_EFFECTIVE, {"count": 99.0, "needed": 100.0})
    assert len(found.differences) == 2
    assert agree(fitted, {"dr": (other, none(other))}, steps(0.0, 0.001, users=100)).ok


def test_a_policy_whose_weights_lie_in_the_basis_is_confirmed_by_a_difference_of_0() -> None:
    fitted = joint({"reward@3": 1.0, "cost@3": 0.0}, 0.0)
    sure = replace(fitted, value=np.zeros(2))
    assert agree(fitted, {}, sure).ok
    gone = joint({"reward@3": np.nan}, withheld={"reward@3": THIN})
    assert not agree(gone, {}, steps(0.0, 0.0)).ok


def test_what_days_make_of_the_old_policy_is_no_contradiction() -> None:
    """Days of the log 10% below all days lower every policy by 10%; where only one differs, it is contradicted."""
    fitted, other = pair(-0.1, error=0.005)
    apart = {"fqe": joint({"reward": 2.0}), "dr": joint({"reward": 1.8})}
    alike = {"fqe": joint({"reward": 2.0}), "dr": joint({"reward": 2.0})}
    assert agree(fitted, {"dr": (other, none(other))}, old=apart).ok
    found = agree(fitted, {"dr": (other, none(other))}, old=alike)
    assert not found.ok
    assert found.finding.kind is ReasonKind.CONTRADICTED
    figures = found.finding.figures
    assert (figures["estimator"], figures["target"]) == ("dr", "reward")
    assert (figures["other"], figures["fitted"]) == pytest.approx((0.9, 1.0))
