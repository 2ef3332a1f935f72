"""Control variates of those users who measure policies: exact for the controls, and errors as they come out."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import outlay
from outlay.bundles.decide import Bundle
from outlay.choosing import measure as measure_module
from outlay.choosing.controls import Controls
from outlay.choosing.measure import Measure
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY, LEARN, SELECT, UNCERTIFYING, Transitions
from outlay.estimators.fitted import Fitted
from outlay.estimators.long_run import LONG_RUN
from slow_habits import World

FEW, MANY = 200, 1_000
MIX = np.array([[1.0, 0.0], [0.3, 1.0]])  # of what two controls have in common


def fitted(values: NDArray[np.float64], target: str = "reward") -> Fitted:
    """The mean of one number of each user."""
    value = values.mean()
    return Fitted(
        targets=(target,),
        value=np.array([value]),
        influence=(values - value)[:, None],
        mass=np.ones((len(values), 1)),
        withheld=(None,),
        unsupported=np.zeros(1),
        daily=np.empty((0, 1)),
    )


def draw(rng: np.random.Generator) -> tuple[Controls, Fitted, Fitted]:
    """Two controls on many users, of whom few measure two policies that go along with them in part."""
    many = rng.normal(size=(MANY, 2)) @ MIX.T
    few = many[:FEW]
    one = few @ [0.8, -0.2] + 0.5 * rng.normal(size=FEW)
    other = few @ [0.1, 0.9] + 0.5 * rng.normal(size=FEW)
    controls = Controls([fitted(x) for x in few.T], [fitted(x) for x in many.T], FEW / MANY)
    return controls, fitted(one), fitted(other)


def test_errors_are_those_that_draws_show() -> None:
    """For policies, a control and differences. With controls, the error of a policy is smaller."""
    rng, values, told, before = np.random.default_rng(1), [], [], []
    for _ in range(600):
        controls, one, other = draw(rng)
        off = [controls.off(each) for each in (one, other, controls.few[0])]
        parts = [each.influence[:, 0] for each in off]
        values.append(
            [*(each.value[0] for each in off), off[0].value[0] - off[2].value[0], off[0].value[0] - off[1].value[0]]
        )
        told.append([part.std() / FEW**0.5 for part in (*parts, parts[0] - parts[2], parts[0] - parts[1])])
        before.append(one.std_error[0])
    assert np.std(values, axis=0) == pytest.approx(np.mean(told, axis=0), rel=0.08)
    assert np.mean(told, axis=0)[0] < 0.7 * np.mean(before)
    assert (np.abs(np.mean(values, axis=0)) < 4 * np.std(values, axis=0) / 600**0.5).all()


def test_a_control_has_the_value_that_many_users_tell() -> None:
    controls, _, _ = draw(np.random.default_rng(2))
    for few, many in zip(controls.few, controls.many, strict=True):
        assert controls.off(few).value == pytest.approx(many.value)
        assert controls.off(few).std_error == pytest.approx(many.std_error, rel=0.15)


def test_what_controls_lack_stays_as_it_is() -> None:
    """A number that only the policy has, one that only the few have, and one that was withheld of it."""
    controls, one, _ = draw(np.random.default_rng(3))
    alone = replace(one, targets=("cost",))
    assert controls.off(alone).value == pytest.approx(one.value)
    fewer = replace(controls, many=[replace(each, targets=("cost",)) for each in controls.many])
    assert fewer.off(one).value == pytest.approx(one.value)
    withheld = one.without([Reason(ReasonKind.UNSTABLE)])
    assert np.isnan(controls.off(withheld).value).all()
    none = replace(controls, many=[each.without([Reason(ReasonKind.UNSTABLE)]) for each in controls.many])
    assert none.off(one).value == pytest.approx(one.value)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Transitions:
    folder = tmp_path_factory.mktemp("controls")
    path = World(days=5, discount=0.9, at_most=1.2, users=1_000).write(folder, users=3_000, seed=5)
    return outlay.prepare(path, folder / "data")


def test_those_who_certify_measure_no_control(data: Transitions, monkeypatch: pytest.MonkeyPatch) -> None:
    few = Measure(data, SELECT, None, long_run=True)
    assert few.controls is not None
    wide = Measure(data, UNCERTIFYING, None, long_run=True)
    assert set(data.users_of(UNCERTIFYING)) == {*data.users_of(LEARN), *data.users_of(SELECT)}
    assert not set(data.rows_of(UNCERTIFYING)) & set(data.rows_of(CERTIFY))
    always = [one.value[one.column(LONG_RUN)] for one in wide.constants(range(data.num_actions), [5])]
    told = [one.value[one.column(LONG_RUN)] for one in few.controls.many[1:]]
    assert told == pytest.approx(always)
    assert few.controls.share == pytest.approx(len(data.users_of(SELECT)) / len(data.users_of(UNCERTIFYING)))
    of_a_network = replace(few, bundle=cast(Bundle, object())).controls
    assert of_a_network is not None, "a network is not asked"
    assert of_a_network.few[0].value == pytest.approx(few.controls.few[0].value, nan_ok=True)
    assert Measure(data, SELECT, None).controls is None, "figures that are shown are as measured"
    assert Measure(data, CERTIFY, None, long_run=True).controls is None
    monkeypatch.setattr(measure_module, "ENOUGH_USERS", 100)
    assert Measure(data, SELECT, None, long_run=True).controls is None
