"""experiment.toml: who gets what in an A/B test, fixed before it starts.

    experiment = Experiment.load("experiment.toml")
    text = experiment_text(experiment)                # with comments and the seal; loads as the same experiment

Once a test is live, only its coverage may grow; another split, salt, budget or metric makes it another test. So the
file carries a seal, a BLAKE2b hash of everything but the ramp, and a file that was changed by hand is refused.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from outlay.core.actions import Given
from outlay.core.errors import OutlayError
from outlay.core.settings import Section, Settings, impossible
from outlay.logs.reading import toml_value

Positive = Annotated[int, Field(gt=0)]
Kind = Literal["bundle", "constant", "random", "holdout"]
CONFIDENCE, POWER = 0.95, 0.8  # of a test, where its file says nothing
WEEK = 7  # days: behaviour depends on the weekday, so a test lasts whole weeks
ROUNDING = 1e-9  # of a sum of shares
EQUAL = 0.01  # budgets per user that differ by less count as equal

WRITE = "Write one with: outlay experiment plan"
MEANINGS = {
    "salt": "of the draw of arms; every test needs its own",
    "start": "day 0",
    "days": "whole weeks",
    "metric": "of the verdict: total per user",
    "better": "the wanted direction",
    "guardrails": "may be looked at on any day",
    "unit": "of money",
    "confidence": "of intervals and of the verdict, over all its decisions",
    "power": "planned",
    "decisions": "days after which the verdict may be given",
    "eligible": "who may be in the test: SQL over the log or the table of users",
    "cluster": "arms are drawn by it, not by user: a column, or SQL over the log or the table of users",
    "seal": "hash of all but the ramp: changes by hand are refused",
}  # of the keys, as comments


class ExperimentMeta(Section):
    """`[experiment]`: what the test measures, on whom and for how long."""

    name: str = Field(pattern=r"^[^:]+$")
    salt: str = Field(pattern=r"^[^:]+$")  # of the draw of arms; default: the name
    campaign: str = Field(min_length=1)
    start: datetime.date
    days: Annotated[int, Field(gt=0, le=366)]  # whole weeks
    metric: str = Field(min_length=1)  # of the verdict: total per user over the days so far
    better: Literal["higher", "lower"] = "higher"  # the wanted direction; for `cost`, lower by default
    guardrails: tuple[str, ...] = ()
    unit: str = "money"  # of money, in sentences and on axes
    confidence: float = Field(default=CONFIDENCE, gt=0.5, lt=1)
    power: float = Field(default=POWER, ge=0.5, lt=1)
    decisions: tuple[Positive, ...]  # days after which the verdict may be given; default: the last
    eligible: str | None = Field(default=None, min_length=1)  # SQL condition: who may be in the test at all
    cluster: str | None = Field(default=None, min_length=1)  # column or SQL: arms are drawn by it, not by user
    seal: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        given = dict(content)
        if "name" in given:
            given.setdefault("salt", given["name"])
        if "days" in given:
            given.setdefault("decisions", [given["days"]])
        if given.get("metric") == "cost":
            given.setdefault("better", "lower")
        return given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.days % WEEK:
            raise impossible(f"`days` is {self.days}; must be whole weeks", f"Give {_weeks_near(self.days)}.")
        if any(day % WEEK for day in self.decisions):
            raise impossible(f"`decisions` is {list(self.decisions)}; each must be whole weeks", "Give e.g. 7,14.")
        if any(b <= a for a, b in pairwise(self.decisions)) or self.decisions[-1:] != (self.days,):
            raise impossible(f"`decisions` is {list(self.decisions)}; must increase and end with `days` ({self.days})")
        named = [self.metric, *self.guardrails]
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise impossible(f"{twice[0]!r} appears twice among metric and guardrails")
        return self


class RampStep(Section):
    """`[[ramp]]`: from this day on, this part of every arm's share is in the test."""

    day: int = Field(ge=0)  # of the test; 0 is the start
    coverage: float = Field(gt=0, le=1)


class Arm(Section):
    """`[[arm]]`: one way of deciding, its share of users and its own budget. The first arm is the control."""

    name: str = Field(min_length=1)
    kind: Kind
    bundle: str | None = None  # of a bundle: its folder, relative to the file
    bundle_id: str | None = None  # of a bundle: a different bundle in the same folder is noticed
    action: Given | None = None  # of a constant
    share: float = Field(gt=0, le=1)  # of eligible users, at full coverage
    budget: float | None = Field(default=None, ge=0)  # money of this arm alone

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        for key, kind in (("bundle", "bundle"), ("action", "constant")):
            if (getattr(self, key) is not None) != (self.kind == kind):
                word = f"needs {key}" if self.kind == kind else f"has no {key}"
                raise impossible(f"the arm {self.name!r} is of kind {self.kind!r}, which {word}")
        if self.bundle_id is not None and self.bundle is None:
            raise impossible(f"the arm {self.name!r} is of kind {self.kind!r}, which has no bundle_id")
        if self.kind == "holdout" and self.budget is not None:
            raise impossible(f"the arm {self.name!r} is a holdout, which gives nothing and must have no budget")
        if self.budget == 0:
            raise impossible(
                f"the arm {self.name!r} has a budget of 0; must be above 0, and an arm that gives nothing is a holdout"
            )
        if self.kind != "holdout" and self.budget is None:
            raise impossible(
                f"the arm {self.name!r} has no budget; arms that share one budget starve each other and bias the lift",
                "Give it a budget.",
            )
        return self


class Experiment(Settings):
    """An experiment.toml, read and checked.

    Attributes:
        meta: the section `[experiment]`.
        ramp: `[[ramp]]`, by day; coverage grows.
        arms: `[[arm]]`, in the order of the file, which is also the order of their hash ranges.
        path: the file it was read from; bundles are relative to its folder.
    """

    file_kind: ClassVar[str] = "an experiment.toml"
    if_absent: ClassVar[str] = f"{WRITE}."

    meta: ExperimentMeta = Field(alias="experiment")
    ramp: tuple[RampStep, ...] = (RampStep(day=0, coverage=1.0),)
    arms: tuple[Arm, ...] = Field(alias="arm")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.arms) < 2:
            raise impossible(f"there is {len(self.arms)} arm; must be at least 2", "Add the arm to compare it with.")
        names = [arm.name for arm in self.arms]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise impossible(f"two arms are named {twice[0]!r}")
        alike = {name.strip().casefold(): name for name in reversed(names)}
        unlike = [name for name in names if alike[name.strip().casefold()] != name]
        if unlike:
            other = alike[unlike[0].strip().casefold()]
            raise impossible(
                f"two arms are named {other!r} and {unlike[0]!r}; names must differ by more than case or spaces"
            )
        total = sum(arm.share for arm in self.arms)
        if total > 1 + ROUNDING:
            raise impossible(
                f"the shares of the arms sum to {total:.6g}; must be at most 1", "Give one of them a smaller share."
            )
        if not self.ramp or self.ramp[0].day != 0:
            raise impossible("the ramp must begin on day 0")
        for before, after in pairwise(self.ramp):
            if after.day <= before.day or after.coverage < before.coverage:
                raise impossible(
                    f"the ramp goes from {before.coverage:g} on day {before.day} to {after.coverage:g} on day "
                    f"{after.day}; days must follow one another and coverage may only grow"
                )
        if self.ramp[-1].day >= self.meta.days:
            raise impossible(f"the ramp has a step on day {self.ramp[-1].day}; the test ends after {self.meta.days}")
        return self

    @property
    def control(self) -> Arm:
        """The arm that the others are compared with: the first."""
        return self.arms[0]

    @property
    def contestants(self) -> tuple[Arm, ...]:
        """The arms that could be adopted afterwards, or all but the control if there are none; they share the error.

        A random slice and a holdout are there to learn from.
        """
        others = self.arms[1:]
        return tuple(arm for arm in others if arm.kind in ("bundle", "constant")) or others

    @property
    def alpha(self) -> float:
        """The error that the verdict on each contestant may make, over all its decisions."""
        return (1 - self.meta.confidence) / len(self.contestants)

    @property
    def end(self) -> datetime.date:
        """The first day after the test."""
        return self.date(self.meta.days)

    @property
    def last_growth(self) -> int:
        """The day on which coverage grows for the last time."""
        return next(step.day for step in self.ramp if step.coverage == self.ramp[-1].coverage)

    @property
    def budget_due(self) -> tuple[float, ...]:
        """`[days]` the share of a budget that is due by the end of each day, if every user's day is worth the same."""
        due = list(accumulate(self.coverage(day) for day in range(self.meta.days)))
        return tuple(part / due[-1] for part in due)

    def date(self, day: int) -> datetime.date:
        """The date of a day of the test; 0 is the start."""
        return self.meta.start + datetime.timedelta(days=day)

    def coverage(self, day: int) -> float:
        """The part of every arm's share that is in the test on a day; 0 before day 0, the last step's after the end."""
        return max((step.coverage for step in self.ramp if step.day <= day), default=0.0)

    def wanted(self, arm: Arm, metric: str) -> int:
        """The wanted direction of a metric under an arm: +1 up, −1 down, 0 if the file does not say.

        Costs should not rise under an arm whose budget per user is no larger than the control's.
        """
        if metric == self.meta.metric:
            return 1 if self.meta.better == "higher" else -1
        old, new = ((x.budget / x.share if x.budget is not None else None) for x in (self.control, arm))
        saves = old is not None and new is not None and new <= old * (1 + EQUAL)
        return -1 if saves and (metric == "cost" or metric.startswith("cost_per_")) else 0

    def seal(self) -> str:
        """BLAKE2b-128 of everything but the ramp, in hexadecimal: identifies the test at every stage of its ramp."""
        content = self.model_dump(
            mode="json", by_alias=True, exclude={"ramp": True, "meta": {"seal"}}, exclude_none=True
        )
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def check_growth(self, live: Experiment) -> None:
        """Check that this file may replace that of a live test: the same test, with no less coverage on any day.

        Raises:
            OutlayError: if anything but the ramp differs, or coverage shrinks.
        """
        if self.seal() != live.seal():
            raise OutlayError(
                f"the test {live.meta.name!r} has been live since {live.meta.start}, and more than its "
                "coverage would change.",
                file=live.path,
                way_out="A changed test is a new one: give it another name, salt and file.",
            )
        for day in sorted({step.day for step in (*self.ramp, *live.ramp)}):
            if self.coverage(day) < live.coverage(day):
                raise OutlayError(
                    f"coverage on day {day} would shrink from {live.coverage(day):g} to {self.coverage(day):g}; users "
                    "who left would come back affected by the test.",
                    file=live.path,
                    where="ramp",
                    way_out="Only increase coverage, or stop the test.",
                )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an experiment.toml and check its seal.

        Raises:
            OutlayError: if it is missing, not TOML, was changed after it was sealed, or has an unknown key or an
                impossible value.
        """
        content = cls.content(path)
        if "experiment" not in content and isinstance(content.get("campaign"), dict):
            raise OutlayError("is a campaign file.", file=path, way_out=f"Give an experiment.toml. {WRITE}.")
        found = cls.parse(content, Path(path))
        if found.meta.seal is None:
            raise OutlayError(
                "is missing: the file was never sealed.", file=path, where="experiment.seal", way_out=f"{WRITE}."
            )
        if found.meta.seal != found.seal():
            raise OutlayError(
                f"is {found.meta.seal!r}, but the content gives {found.seal()!r}: more than the ramp was changed "
                "after it was sealed.",
                file=path,
                where="experiment.seal",
                way_out="Use the file that was planned; a changed test is a new one (outlay experiment plan).",
            )
        return found


def _weeks_near(days: int) -> str:
    low, high = days // WEEK * WEEK, -(-days // WEEK) * WEEK
    return f"{low} or {high}" if low else f"{high}"


def experiment_text(experiment: Experiment) -> str:
    """The text of a sealed experiment.toml, which `Experiment.load` reads back as the same experiment."""
    meta = experiment.meta.model_dump(exclude_none=True) | {"seal": experiment.seal()}
    lines = [
        "# Written by outlay experiment plan. Once the test is live, only the ramp may change here, and its coverage",
        "# may only grow. Another split, salt, budget or metric makes it another test.",
        "",
        "[experiment]",
        *(_line(key, value, MEANINGS.get(key)) for key, value in meta.items()),
        "",
        "# From a day on, this part of every arm's share is in the test; nobody changes arms.",
    ]
    for step in experiment.ramp:
        lines += ["[[ramp]]", *(_line(key, value) for key, value in step.model_dump().items()), ""]
    lines += ["# The first arm is the control. Each arm has a range of the hash, in this order, and its own budget."]
    for arm in experiment.arms:
        lines += ["[[arm]]", *(_line(key, value, _meaning(arm, key)) for key, value in _given(arm).items()), ""]
    return "\n".join(lines)


def _given(arm: Arm) -> dict[str, Any]:
    return arm.model_dump(exclude_none=True)


def _meaning(arm: Arm, key: str) -> str | None:
    if key == "kind":
        return {
            "bundle": "decided by a bundle",
            "constant": "everyone gets the same action",
            "random": "actions drawn evenly",
            "holdout": "nobody gets anything",
        }[arm.kind]
    return {"share": "of eligible users, at full coverage", "budget": "money of this arm alone"}.get(key)


def _line(key: str, value: Any, meaning: str | None = None) -> str:
    written = str(value) if isinstance(value, datetime.date) else toml_value(value)
    line = f"{key} = {written}"
    return f"{line:<24}  # {meaning}" if meaning else line
