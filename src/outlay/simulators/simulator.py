"""The interface of simulated campaigns, and the record of those with few states.

A file of this folder that makes a campaign has a function `simulator` that returns a `World`. For a participation
campaign that is the record `Simulator`: log, campaign file, truth on disk and environment are all made from it. In such
a campaign a user is active or not each day, and a coupon is paid only on an active day:

    active ~ P(active | state, coupon)         reward = active         cost = coupon · active
    state' = moved[state, active] with probability move_prob[state, active], else stayed[state, active]

The coupon acts through today's activity alone; what is lasting about it lies in the states.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.core.cmdp import TabularCMDP
from outlay.ops.tabular import measure
from outlay.simulators.write import CampaignFile, Columns

Held = tuple[float, float] | None  # two coupons, one of which each user keeps

CHUNK_ROWS = 100_000  # bounds the memory, and is the size of a row group in the log


class World(Protocol):
    """A campaign whose truth is known."""

    @property
    def log_days(self) -> int:
        """Default days of log."""

    @property
    def coupons(self) -> NDArray[np.float64]:
        """`[A]` values given, ascending, in the campaign's unit of money."""

    @property
    def num_features(self) -> int:
        """Feature columns of the log."""

    def generate(self, users: int, days: int, seed: int, *, held: Held = None) -> Iterator[Columns]:
        """The log, in chunks of whole users, rows in the order of the days; `user` is the user's index.

        Raises:
            OutlayError: for `held`, where the campaign has no such experiment.
        """

    def text(self, days: int, held: Held = None) -> str:
        """campaign.toml of such a log."""

    def write_truth(self, folder: Path) -> None:
        """Write the truth into the folder of the log."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Participation:
    """The truth of a campaign, with S states and A coupons, as it is drawn from.

    Attributes:
        active_prob: `[S, A]` probability of being active today.
        move_prob: `[S, 2]` probability of a move after the day; column 0 after a day that was not active, 1 after one
            that was.
        moved, stayed: `[S, 2]` the state of the next day with and without that move; columns as in `move_prob`.
        start: `[S]` distribution of the first state.
        coupons: `[A]` values given, ascending, in the campaign's unit of money.
        discount: γ per day.
    """

    active_prob: NDArray[np.float64]
    move_prob: NDArray[np.float64]
    moved: NDArray[np.intp]
    stayed: NDArray[np.intp]
    start: NDArray[np.float64]
    coupons: NDArray[np.float64]
    discount: float

    def cmdp(self) -> TabularCMDP:
        """The exact model: expected reward and cost, and where each state leads."""
        num_states, num_coupons = self.active_prob.shape
        transition = np.zeros((num_states, num_coupons, num_states))
        state = np.arange(num_states)
        for active, day_prob in ((0, 1 - self.active_prob), (1, self.active_prob)):
            move = self.move_prob[:, active, None]
            transition[state, :, self.moved[:, active]] += day_prob * move
            transition[state, :, self.stayed[:, active]] += day_prob * (1 - move)
        return TabularCMDP(
            transition=transition,
            reward=self.active_prob,
            cost=(self.active_prob * self.coupons)[:, :, None],
            start=self.start,
            discount=self.discount,
        )

    def newcomers(self, rng: np.random.Generator, n: int) -> NDArray[np.intp]:
        """`[n]` first states."""
        return rng.choice(len(self.start), size=n, p=self.start)

    def day(
        self, rng: np.random.Generator, state: NDArray[np.intp], action: NDArray[np.integer]
    ) -> tuple[NDArray[np.int8], NDArray[np.intp]]:
        """One day of n users: `active` (0 or 1) and the next state, both `[n]`, from state and action index `[n]`."""
        active = (rng.random(len(state)) < self.active_prob[state, action]).astype(np.int8)
        moves = rng.random(len(state)) < self.move_prob[state, active]
        return active, np.where(moves, self.moved[state, active], self.stayed[state, active])


@dataclass(frozen=True, slots=True, eq=False)
class Feature:
    """A categorical column of the log.

    Attributes:
        name: of the column.
        values: what the log says for code 0, 1, …; the type of the column.
    """

    name: str
    values: NDArray[np.generic]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulator:
    """A campaign whose truth is known.

    Attributes:
        name: of the campaign.
        model: the truth.
        features: F columns, the state as a log shows it.
        codes: `[F, S]` the features of each state (column i = state i).
        log_days: default days of log.
        horizon_days: of a total per user.
        report_days: windows of the tables.
        at_most: the limit in the campaign file, in money per decision.
        contrast: the two coupons of the effect table.
        none: the value that means no coupon, if there is one.
        segment: column or SQL expression of the groups in tables.
        about_features: what the features are, in words.
    """

    name: str
    model: Participation
    features: tuple[Feature, ...]
    codes: NDArray[np.integer]
    log_days: int
    horizon_days: int
    report_days: tuple[int, ...]
    at_most: float
    contrast: tuple[float, float]
    none: float | None = None
    segment: str
    about_features: str

    @property
    def coupons(self) -> NDArray[np.float64]:
        """`[A]` values given, ascending."""
        return self.model.coupons

    @property
    def num_features(self) -> int:
        """Feature columns of the log."""
        return len(self.features)

    def text(self, days: int, held: Held = None) -> str:
        """campaign.toml for a log of `generate`.

        With `held` the actions are the two held coupons: the log says nothing about the others, so no policy may choose
        them (the truth keeps all), and the contrast of the effect table is that pair.
        """
        coupons = self.coupons.tolist()
        return CampaignFile(
            name=self.name,
            discount=self.model.discount,
            horizon_days=min(days, self.horizon_days),
            report_days=[k for k in self.report_days if k <= days],
            none=self.none if held is None or self.none in held else None,
            actions=coupons if held is None else sorted(held),
            propensity=f"1/{len(coupons)} each day, independent"
            if held is None
            else "1/2 on the first day, 1 after it",
            more="" if held is None else '\nforced = "forced"         # rows without a choice: after the first day',
            segment=self.segment,
            contrast=self.contrast if held is None else sorted(held),
            categorical=[feature.name for feature in self.features],
            about_features=self.about_features,
            at_most=self.limit(held),
            truth="truth.npz, states.parquet",
        ).text()

    def write_truth(self, folder: Path) -> None:
        """The exact model, and what its states look like."""
        truth = self.model.cmdp()
        pq.write_table(pa.table(dict(self.states())), folder / "states.parquet")
        np.savez_compressed(
            folder / "truth.npz",
            transition=truth.transition,
            reward=truth.reward,
            cost=truth.cost,
            start=truth.start,
            actions=self.coupons,
            discount=np.float64(truth.discount),
        )

    def states(self) -> Columns:
        """The feature columns, row i = state i."""
        return self._columns(self.codes)

    def limit(self, held: Held) -> float:
        """The limit that the campaign file sets, per decision; midway between what two held coupons cost."""
        if held is None:
            return self.at_most
        cmdp = self.model.cmdp()
        kept = np.searchsorted(self.model.coupons, held)
        costs = [measure(cmdp, np.full(cmdp.num_states, action))[1] for action in kept]
        return float(f"{np.mean(costs):.3g}")

    def generate(self, users: int, days: int, seed: int, *, held: Held = None) -> Iterator[Columns]:
        """The log, in chunks of whole users; a user's rows are contiguous and in the order of the days.

        Args:
            users: number of users.
            days: rows per user.
            seed: of the random numbers; the same arguments give the same log.
            held: None: every day one of the coupons, uniform and independent. Two coupons: one of them per user, drawn
                with equal probability and kept, so that rows after the first are forced.

        Yields:
            Columns of N rows: `user` (index), `day`, the features, `coupon`, `active`, `cost`, `propensity`, and with
            `held` also `forced`.
        """
        rng = np.random.default_rng(seed)
        per_chunk = max(1, CHUNK_ROWS // days)
        for begin in range(0, users, per_chunk):
            yield self._chunk(rng, np.arange(begin, min(begin + per_chunk, users)), days, held)

    def _chunk(self, rng: np.random.Generator, user: NDArray[np.int64], days: int, held: Held) -> Columns:
        """All `days` of the users `[n]`, one day of all of them at a time."""
        n, coupons = len(user), self.model.coupons
        if held is None:
            action = rng.integers(len(coupons), size=(n, days), dtype=np.int8)
            propensity = np.full((n, days), 1 / len(coupons))
        else:
            pair = np.searchsorted(coupons, held).astype(np.int8)
            action = np.repeat(pair[rng.integers(2, size=n)][:, None], days, axis=1)
            propensity = np.where(np.arange(days) == 0, 0.5, np.ones((n, 1)))
        state = np.empty((n, days), dtype=np.intp)
        active = np.empty((n, days), dtype=np.int8)
        now = self.model.newcomers(rng, n)
        for day in range(days):
            state[:, day] = now
            active[:, day], now = self.model.day(rng, now, action[:, day])
        coupon = coupons[action]
        columns: dict[str, NDArray[np.generic]] = {
            "user": np.repeat(user, days),
            "day": np.tile(np.arange(days, dtype=np.int32), n),
            **self._columns(self.codes[:, state.ravel()]),
            "coupon": coupon.ravel(),
            "active": active.ravel(),
            "cost": (coupon * active).ravel(),
            "propensity": propensity.ravel(),
        }
        if held is not None:
            columns["forced"] = np.tile(np.arange(days) > 0, n)
        return columns

    def _columns(self, codes: NDArray[np.integer]) -> Columns:
        return {feature.name: feature.values[code] for feature, code in zip(self.features, codes, strict=True)}
