"""experiment.toml: what is refused, what the seal covers, what may grow."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from small_experiments import NEW, NONE, OLD, RAMP, content, spring

from outlay.core.errors import OutlayError
from outlay.experiments.design import Experiment, experiment_text


def written(folder: Path, experiment: Experiment, *changes: tuple[str, str]) -> Path:
    text = experiment_text(experiment)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "experiment.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_written_file_reads_back_as_the_same_experiment(tmp_path: Path) -> None:
    names = spring(name='a "quoted" näme\x7f\n', eligible="level <= 1 and region <> 'x'", decisions=[7, 14])
    for experiment in (spring(), names):
        found = Experiment.load(written(tmp_path, experiment))
        assert found.meta.seal == experiment.seal() == found.seal()
        assert found.arms == experiment.arms
        assert found.ramp == experiment.ramp
        assert found.meta.model_copy(update={"seal": None}) == experiment.meta


def test_the_first_arm_is_the_control_and_the_salt_is_the_name() -> None:
    experiment = spring()
    assert experiment.control.name == "old"
    assert experiment.meta.salt == "spring"
    assert experiment.meta.decisions == (14,)
    assert experiment.end == datetime.date(2026, 3, 16)


def test_random_slices_and_holdouts_are_no_contestants() -> None:
    bundle = {"name": "b", "kind": "bundle", "bundle": "run/bundle", "share": 0.1, "budget": 1.0}
    some = Experiment.parse(content() | {"arm": [OLD, NEW, NONE, bundle]})
    assert [arm.name for arm in some.contestants] == ["b"]
    assert [arm.name for arm in spring().contestants] == ["new", "none"]


def test_coverage_is_that_of_the_last_step() -> None:
    experiment = spring()
    assert [experiment.coverage(day) for day in (-1, 0, 1, 2, 3, 4, 13, 40)] == [0, 0.1, 0.1, 0.5, 0.5, 1, 1, 1]
    assert experiment.last_growth == 4
    steps = [*RAMP, {"day": 6, "coverage": 1.0}]
    assert Experiment.parse(content() | {"ramp": steps}).last_growth == 4


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"days": 10}, r"`days` is 10; .*Give 7 or 14"),
        ({"days": 3}, r"`days` is 3; .*Give 7\."),
        ({"decisions": [8, 14]}, "each must be whole weeks"),
        ({"decisions": [7]}, r"end with `days` \(14\)"),
        ({"decisions": [14, 7, 14]}, "must increase and end"),
        ({"guardrails": ["cost", "active"]}, "'active' appears twice"),
        ({"salt": "a:b"}, "experiment.salt: is 'a:b'"),
        ({"confidence": 95}, "experiment.confidence: is 95"),
        ({"powr": 0.8}, r"experiment.powr: .*'power'"),
        ({"start": "soon"}, "experiment.start: is 'soon'"),
    ],
)
def test_impossible_settings_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(OutlayError, match=message):
        spring(**changed)


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ([OLD], r"\b1 arm; .*at least 2\b"),
        ([OLD, OLD], "two arms are named 'old'"),
        ([OLD, NEW | {"share": 0.6}], r"sum to 1\.1; .*at most 1\b"),
        ([OLD, {**NEW, "budget": None}], r"arm 'new' .*no budget"),
        ([OLD, NONE | {"budget": 1.0}], r"'none' .*holdout, .*no budget"),
        ([OLD, NEW | {"action": 2.0}], r"'new' .*'random', .*no action"),
        ([OLD, NEW | {"kind": "bundle"}], r"'new' .*'bundle', .*bundle"),
        ([OLD, NEW | {"bundle_id": "0"}], "which has no bundle_id"),
        ([OLD, NEW | {"share": 0.0}], r"arm .new.\.share: is 0\.0"),
    ],
)
def test_impossible_arms_are_refused(arms: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(OutlayError, match=message):
        Experiment.parse(content() | {"arm": arms})


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([(1, 0.5)], "must begin on day 0"),
        ([(0, 0.5), (2, 0.4)], "coverage may only grow"),
        ([(0, 0.5), (0, 0.6)], "days must follow one another"),
        ([(0, 0.5), (14, 1.0)], r"step on day 14; .*after 14\b"),
        ([(0, 0.0)], r"ramp\[0\]\.coverage: is 0\.0"),
    ],
)
def test_impossible_ramps_are_refused(steps: list[tuple[int, float]], message: str) -> None:
    with pytest.raises(OutlayError, match=message):
        Experiment.parse(content() | {"ramp": [{"day": day, "coverage": coverage} for day, coverage in steps]})


def test_shares_that_sum_to_one_but_for_rounding_are_taken() -> None:
    shares = [0.1] * 10
    arms = [{**NONE, "name": str(i), "share": share} for i, share in enumerate(shares)]
    assert sum(shares) != 1
    Experiment.parse(content() | {"arm": arms})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('salt = "spring"', 'salt = "other"'),
        ("share = 0.3", "share = 0.31"),
        ("budget = 12000.0", "budget = 12001.0"),
        ('metric = "active"', 'metric = "cost"'),
        ("start = 2026-03-02", "start = 2026-03-03"),
        ("action = 1.5", "action = 2.0"),
        ('name = "none"', 'name = "nobody"'),
    ],
)
def test_a_file_that_was_changed_by_hand_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = written(tmp_path, spring(), (old, new))
    with pytest.raises(OutlayError, match=r"experiment\.seal: .*\bramp\b"):
        Experiment.load(path)


def test_the_seal_leaves_the_ramp_free_and_comments_too(tmp_path: Path) -> None:
    path = written(tmp_path, spring(), ("coverage = 0.1", "coverage = 0.2"), ("# whole weeks", "# two weeks"))
    assert Experiment.load(path).coverage(0) == 0.2


def test_a_file_without_a_seal_is_refused(tmp_path: Path) -> None:
    experiment = spring()
    path = written(tmp_path, experiment, (f'seal = "{experiment.seal()}"', ""))
    with pytest.raises(OutlayError, match=r"never sealed.*outlay experiment plan"):
        Experiment.load(path)


def test_a_file_that_is_no_experiment_is_told(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    with pytest.raises(OutlayError, match="does not exist"):
        Experiment.load(path)
    path.write_text("[experiment")
    with pytest.raises(OutlayError, match="is not valid TOML"):
        Experiment.load(path)


def test_only_coverage_may_grow_while_live() -> None:
    live = spring()
    faster = Experiment.parse(content() | {"ramp": [{"day": 0, "coverage": 0.1}, {"day": 1, "coverage": 1.0}]})
    faster.check_growth(live)
    slower = Experiment.parse(content() | {"ramp": [{"day": 0, "coverage": 0.1}, {"day": 3, "coverage": 1.0}]})
    with pytest.raises(OutlayError, match=r"coverage on day 2 .*0\.5 to 0\.1"):
        slower.check_growth(live)
    with pytest.raises(OutlayError, match=r"'spring' .*2026-03-02, .*coverage"):
        spring(eligible="level = 1").check_growth(live)


def test_less_money_is_better_and_more_of_all_else() -> None:
    assert [spring(metric=metric).meta.better for metric in ("active", "cost", "orders")] == [
        "higher",
        "lower",
        "higher",
    ]
    assert spring(metric="cost", better="higher").meta.better == "higher"
    with pytest.raises(OutlayError, match="better"):
        spring(better="up")


def test_which_way_a_metric_should_go_depends_on_the_money_of_the_arms() -> None:
    found = Experiment.parse(content(guardrails=["cost", "redemption", "cost_per_active"]))
    _, new, none = found.arms  # as much money for a user as the control; none at all
    assert [found.wanted(new, name) for name in ("active", "cost", "cost_per_active", "redemption")] == [1, -1, -1, 0]
    assert found.wanted(none, "cost") == 0, "a holdout cannot spend"
    rich = new.model_copy(update={"budget": 13_000.0})
    assert found.wanted(rich, "cost") == 0
    assert spring(better="lower").wanted(rich, "active") == -1


def test_a_campaign_file_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "campaign.toml").write_text('[campaign]\nname = "habit"\n')
    with pytest.raises(OutlayError, match=r"campaign file\. .*experiment\.toml"):
        Experiment.load(tmp_path / "campaign.toml")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arm": [OLD, {**NEW, "name": "Old "}]}, "two arms are named 'old' and 'Old '; names must differ by more"),
        (
            {"arm": [OLD, {**NEW, "budget": 0}]},
            "'new' has a budget of 0; must be above 0, and an arm that gives nothing is a holdout",
        ),
        ({"experiment": {**content()["experiment"], "days": 700}}, "days: is 700; expected: at most 366"),
    ],
)
def test_what_would_go_wrong_later_is_refused_at_once(change: dict[str, Any], said: str) -> None:
    with pytest.raises(OutlayError) as caught:
        Experiment.parse(content() | change)
    assert said in str(caught.value)
