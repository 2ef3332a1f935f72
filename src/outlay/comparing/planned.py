"""The rows of a comparison by name, and what has to be learned for them. Several rows may share a training.

    RL          an oracle's game, played once; every mixing rule observes the same candidates
    bisection   an oracle's game with another multiplier player: one policy (Xiao et al. 2019)
    frontier    an oracle's best responses to every λ at once, or those of the counted model
    two-stage   a response model of k-day labels, priced

A rule has a row with the weights that it found online, and one of the same members with weights solved again.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from outlay.comparing.results import RE_SOLVED, MethodRow
from outlay.core.errors import OutlayError
from outlay.training import BISECTION

NETWORK = "+network"  # after an oracle whose game has one more network, which measures the candidates
ORTHOGONAL = "orthogonal"  # an oracle of frontiers alone
COUNTED = "tabular"  # the oracle that counts instead of learning
FRONTIER = "frontier"  # the name of a frontier in the place of a mixing rule
COMPARED_RULES = ("single-best", "aim-mean", "aim-greedy", "lp")
TITLES = {"ddqn": "DDQN", "edrr": "EDRR", "bcq": "BCQ", "deepfm": "DeepFM", "din": "DIN"}


@dataclass(frozen=True)
class PlannedTraining:
    """One training.

    Attributes:
        kind: what is learned.
        learner: the oracle or the response model.
        label_days: of a response model; 0 for others.
        rows: that it is needed for, as they are before learning: under no control, without figures.
    """

    kind: Literal["response", "game", "bisection", "frontier"]
    learner: str
    label_days: int
    rows: tuple[MethodRow, ...]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.kind}-{self.learner}-{self.label_days}"


def planned(
    oracles: Sequence[str],
    responses: Sequence[str],
    label_days: Sequence[int],
    *,
    counted: bool,
    wanted: Sequence[str] | None,
) -> list[PlannedTraining]:
    """List what has to be learned, in the order of the rows.

    Args:
        oracles: of games and frontiers.
        responses: the response models.
        label_days: days that their labels look ahead.
        counted: whether the log's states can be counted.
        wanted: patterns of names of rows, `*` for any text, whatever the case; None: all.

    Raises:
        OutlayError: if a pattern fits no row.
    """
    games = [oracle for oracle in oracles if oracle != ORTHOGONAL]
    frontiers = [oracle for oracle in oracles if not oracle.endswith(NETWORK)] + [COUNTED] * counted
    every = [
        *(PlannedTraining("response", model, k, (_two_stage(model, k),)) for model in responses for k in label_days),
        *(PlannedTraining("game", oracle, 0, rule_rows(oracle)) for oracle in games),
        *(PlannedTraining("bisection", oracle, 0, (_looking_ahead(oracle, BISECTION),)) for oracle in games),
        *(PlannedTraining("frontier", oracle, 0, (_frontier(oracle),)) for oracle in frontiers),
    ]
    if wanted is None:
        return every
    names = [row.name for training in every for row in training.rows]
    for pattern in wanted:
        if not any(_fits(name, pattern) for name in names):
            raise OutlayError(
                f"is {pattern!r}; no row has that name.", where="rows", way_out=f"Rows: {'; '.join(names)}."
            )
    kept = [replace(one, rows=tuple(r for r in one.rows if any(_fits(r.name, p) for p in wanted))) for one in every]
    return [training for training in kept if training.rows]


def rule_rows(oracle: str) -> tuple[MethodRow, ...]:
    """Return two rows for each rule: with its own weights, and with weights solved again."""
    return tuple(_looking_ahead(oracle, f"{rule}{which}") for rule in COMPARED_RULES for which in ("", RE_SOLVED))


def _looking_ahead(oracle: str, rule: str) -> MethodRow:
    title = TITLES[oracle.removesuffix(NETWORK)] + (" with a cost network" if oracle.endswith(NETWORK) else "")
    return MethodRow(f"{title}, {rule}", "rl", "", oracle=oracle, rule=rule)


def _frontier(oracle: str) -> MethodRow:
    name = f"{FRONTIER}, {'counted' if oracle == COUNTED else oracle}"
    return MethodRow(name, "rl", "", oracle=oracle, rule=FRONTIER)


def _two_stage(model: str, days: int) -> MethodRow:
    return MethodRow(f"{TITLES[model]}, {days}-day label", "two-stage", "", oracle=model, label_days=days)


def _fits(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name.lower(), pattern.lower())
