"""`outlay plan-log`: how large the next log must be, and how much of it random, before it can prove a gain.

plan = plan_log("campaign.toml", gain=0.02)
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from outlay.choosing.measure import Measure
from outlay.core.campaign import Campaign
from outlay.core.errors import OutlayError
from outlay.core.estimate import Target
from outlay.core.shown import Shown
from outlay.core.transitions import EVERYONE
from outlay.core.wording import days as days_in_words
from outlay.core.wording import in_units, number
from outlay.estimators.long_run import advantages, is_told
from outlay.evaluating.log_size import SHARES, LogSize, PastActivity, log_sizes, past_activity, wider
from outlay.jobs.memory import campaign_of
from outlay.jobs.prepare import prepare

MOST_USERS = 40_000  # of the past log, from whom the spread is estimated


@dataclass(frozen=True, repr=False)
class LogPlan(Shown):
    """How large the next log must be.

    Attributes:
        campaign: its name.
        reward: what the reward is called.
        past: what the past log says.
        users: of the next log.
        days: units of `time` of the next log; 1 where each user has one row.
        unit: what such a unit is called; None where each user has one row.
        gain: relative gain that users are wanted for; None where none was asked for.
        sizes: by the share that is drawn at random.
    """

    campaign: str
    reward: str
    past: PastActivity
    users: int
    days: int
    gain: float | None
    sizes: tuple[LogSize, ...]
    unit: str | None = "day"

    def headline(self) -> str:
        """The size of the next log."""
        over = "" if self.span is None else f" over {self.span}"
        return f"a log of {number(self.users)} users{over}, by the share drawn at random."

    @property
    def span(self) -> str | None:
        """How long the next log goes on, in words; None where each user has one row."""
        return None if self.unit is None else in_units(days_in_words(self.days), self.unit)

    def tables(self) -> Mapping[str, Sequence[Any]]:
        """What each share can prove."""
        return {"sizes": self.sizes}

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        past = {key: value for key, value in asdict(self.past).items() if key not in ("given", "states")}
        return {**asdict(self), "past": past}


def plan_log(
    log: Any,
    *,
    campaign: Campaign | str | Path | None = None,
    users: int | None = None,
    days: int | None = None,
    gain: float | None = None,
    shares: Sequence[float] = SHARES,
    threads: int | None = None,
) -> LogPlan:
    """Say what a log of some size can prove, and what drawing actions at random costs meanwhile.

    Args:
        log: a campaign with a past log of the customers, or the path of its file; or a table in memory. Nothing in it
            has to be random.
        campaign: what the columns of a table in memory mean; None: guessed as `init` does.
        users: of the next log; None: as many as the past one has.
        days: of the next log; None: as many as the past one has.
        gain: relative to the reward of the log, e.g. 0.02, to say how many users find it.
        shares: of the decisions that may be drawn evenly at random, in (0, 1].
        threads: of DuckDB; None: its choice.

    Raises:
        OutlayError: if a number is impossible, or users' rewards do not differ.
        CampaignError: if the campaign file is wrong, or names what the log does not have.
        LogError: if the log cannot be read or fails a check that blocks.
    """
    for key, value in (("users", users), ("days", days)):
        if value is not None and value < 1:
            raise OutlayError(f"is {value}; must be at least 1.", where=key, way_out="Give the size of the next log.")
    if wrong := [share for share in shares if not 0 < share <= 1]:
        raise OutlayError(f"has {wrong[0]:g}; must be above 0, and at most 1.", where="shares", way_out="Give shares.")
    if gain is not None and not 0 < gain < 1:
        way_out = "Give a relative gain, e.g. 0.02 for 2%."
        raise OutlayError(f"is {gain:g}; must be between 0 and 1.", where="gain", way_out=way_out)
    with campaign_of(log, campaign) as known, tempfile.TemporaryDirectory(prefix="outlay-") as folder:
        of = known if isinstance(known, Campaign) else Campaign.load(known)
        past, of = _past(of, Path(folder), threads)
    once = bool(of.log.once)
    if once and days not in (None, 1):
        raise OutlayError(
            f"is {days}, but each user of this log has one row.",
            file=of.path,
            where="days",
            way_out="Leave it out: give how many users the next log will have.",
        )
    if past.mean == 0 or past.spread == 0:
        raise OutlayError(
            "is the same in every row: nothing can be proved about it.",
            file=of.path,
            where="log.reward",
            way_out="Take an outcome that differs between rows.",
        )
    users, days = past.users if users is None else users, past.days if days is None else days
    sizes = tuple(log_sizes(past, users=users, days=days, gain=gain, shares=shares))
    return LogPlan(of.meta.name, of.reward_label, past, users, days, gain, sizes, None if once else of.unit)


def _past(campaign: Campaign, folder: Path, threads: int | None) -> tuple[PastActivity, Campaign]:
    """What the log says of the next one; the campaign as it was read."""
    data = prepare(campaign, folder / "data", threads=threads)
    campaign = data.campaign
    measure = Measure(data, EVERYONE, None, most_users=MOST_USERS)
    panel = measure.panel
    advantage, _ = advantages(panel)
    choice = ~panel.forced
    found = past_activity(
        panel.outcome[choice, 0],
        np.where(is_told(panel), advantage, np.nan)[choice],
        panel.action[choice],
        measure.propensity()[choice] if campaign.log.known_assignment else None,
        panel.user[choice],
        None if measure.sequential or panel.state is None else panel.state[choice],
        actions=data.num_actions,
        discount=panel.discount,
    )
    if measure.sequential:
        errors = _errors(measure) if campaign.log.known_assignment else []
        found = replace(found, wider=wider(found, errors))
    return replace(found, users=len(data.users)), data.campaign


def _errors(measure: Measure) -> list[float]:
    """Standard errors of what each action, given always, brings more than the log's policy, relative to that."""
    assert measure.window is not None
    actions, days = np.flatnonzero(measure.data.allowed_everywhere).tolist(), (measure.window,)
    old, target = measure.fit(None, days=days), str(Target("reward", measure.window))
    gains = [fitted.minus(old) for fitted in measure.constants(actions, days)]
    errors = np.array([gain.std_error[gain.column(target)] for gain in gains]) / abs(old.value[old.column(target)])
    found: list[float] = errors[np.isfinite(errors)].tolist()
    return found
