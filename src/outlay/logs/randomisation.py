"""Does the assignment of actions look randomised, and is there enough of every action everywhere?

Stated propensities are held against the log (`propensities`). Where they do not vary, or none are stated, the action
must not depend on anything known before: Cramér's V of action against each categorical feature, the segment and the
user's last action, the correlation ratio η for numeric features, both corrected for bias (0: no dependence, 1: a
function). A dependence counts if it is large enough to matter and too large for chance (χ² or F test).

The calendar and the log's other columns are looked at in `drivers.py`.

Source: Bergsma (2013) for the corrected V; ε² of Kelley (1935) for η.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, fdtrc, ndtri

from outlay.core.actions import Given, named
from outlay.core.assignment import Assignment
from outlay.logs.quality import Facts
from outlay.logs.roles import Log
from outlay.logs.source import ROW
from outlay.ops.intervals import BY_CHANCE

MAX_FEATURES = 50  # looked at, of each kind
MAX_VALUES = 10_000  # of a feature; rarer ones are left out
EXPECTED = 5  # rows a cell of the table must expect (Cochran's rule); rarer values are put together
WEAK, STRONG = 0.03, 0.10  # V or η below WEAK counts as none
CHANCE = 1e-3  # of a false alarm about any feature


@dataclass(frozen=True)
class Dependence:
    """How much the action depends on `name`: V or η in [0, 1], and the chance of as much where there is none."""

    name: str
    strength: float
    p_value: float


@dataclass(frozen=True)
class Overlap:
    """How often an action was given where there was a choice.

    Attributes:
        action: the value.
        share: of the rows with a choice.
        least_share: the smallest share over segments, and `least_segment`, where that is.
        least_propensity: the smallest stated one, if any are.
        z: Σ 1/p against the rows in which it could be given, in standard errors; None where none are stated, or the
            action was never given.
    """

    action: Given
    share: float
    least_share: float
    least_segment: str
    least_propensity: float | None
    z: float | None


@dataclass(frozen=True)
class Randomisation:
    """The verdict in words, and what it rests on."""

    looks_randomised: bool
    verdict: str
    stated: bool
    dependences: tuple[Dependence, ...]


def overlap(log: Log, facts: Facts) -> list[Overlap]:
    """Shares of each action; segments are taken at a user's first row."""
    claims = facts.propensities.overall if facts.propensities else {}
    counts: dict[str, dict[float, int]] = {}
    rows = log.source.run(f"""
        SELECT coalesce(CAST(f.segment AS VARCHAR), 'missing') AS segment, r.action, count(*)
        FROM roles r JOIN links l ON l.row = r.row JOIN users u ON u.id = l.id JOIN roles f ON f.row = u.first_row
        WHERE {log.choice_of("r")} GROUP BY ALL ORDER BY ALL""")
    for segment, action, count in rows:
        counts.setdefault(segment, {})[action] = count
    result = []
    for action in facts.actions:
        shares = {name: found.get(action.value, 0) / sum(found.values()) for name, found in counts.items()}
        segment = min(shares, key=lambda name: shares[name], default="all")
        result.append(
            Overlap(
                action.called,
                action.choices / max(facts.choices, 1),
                shares.get(segment, 0.0),
                segment,
                action.least_propensity,
                claims[action.value].z if action.value in claims else None,
            )
        )
    return result


def randomisation(log: Log, facts: Facts, overlaps: list[Overlap], driven: Assignment) -> Randomisation:
    """Whether the assignment looks randomised; `driven` says what it goes with beyond what the campaign file tells."""
    found = _by_features(log, facts, overlaps)
    if not found.looks_randomised or not driven.drivers:
        return found
    words = driven.words[0].upper() + driven.words[1:]
    return Randomisation(False, f"{words}. It does not look randomised.", found.stated, found.dependences)


def _by_features(log: Log, facts: Facts, overlaps: list[Overlap]) -> Randomisation:
    """Whether the assignment looks randomised by features, the segment and the action before."""
    stated = log.campaign.log.propensity is not None
    if stated:
        if facts.propensities and facts.propensities.certain:
            return Randomisation(False, "Every stated propensity is 1: no action was left to chance.", True, ())
        if facts.propensities and facts.propensities.contradicted:
            verdict = f"The stated propensities do not fit the log: {facts.propensities}."
            return Randomisation(False, verdict, True, ())
        if _propensities_vary(log):  # rare draws that did not come leave Σ 1/p low: only too high contradicts
            return Randomisation(True, "Nothing in the log contradicts the stated propensities.", True, ())
        low = [(o.z, o.action) for o in overlaps if o.z is not None and o.z < -BY_CHANCE]
        if low:
            z, action = min(low, key=lambda each: each[0])
            verdict = (
                f"Action {named(action)} was given less often than its stated propensity says ({-z:.1f} standard "
                "errors): it is too high, or the action had no chance in some rows."
            )
            return Randomisation(False, verdict, True, ())
    dependences = tuple(sorted(_dependences(log), key=lambda d: -d.strength))
    real = [d for d in dependences if d.strength >= WEAK and d.p_value < CHANCE / len(dependences)]
    if not real:
        opening = "The stated propensities fit the observed shares, and no" if stated else "No"
        verdict = f"{opening} feature tells who got what, as if chance had decided: it looks randomised."
        if (least := _shows(facts.choices, len(dependences))) >= 1:
            verdict = f"{opening} feature tells who got what; but {facts.choices:,} rows are too few to show it."
        elif least > STRONG:
            verdict = (
                f"{opening} feature tells who got what, as if chance had decided; but in {facts.choices:,} rows only a "
                f"dependence above {least:.2f} would show (0: none, 1: wholly)."
            )
        return Randomisation(True, verdict, stated, dependences)
    told = ", ".join(f"{d.name} ({d.strength:.2f})" for d in real[:4]) + (" …" if len(real) > 4 else "")
    degree = "strongly" if real[0].strength >= STRONG else "weakly"
    verdict = f"The action depends {degree} on what was known before: {told} (0: not at all, 1: wholly)."
    verdict += (
        " The stated propensities do not vary with it, so they cannot be right."
        if stated
        else " It was not randomised over all rows: effects below mix cause and choice."
    )
    return Randomisation(False, verdict, stated, dependences)


def _shows(rows: int, looked: int) -> float:
    """The least dependence that would be found in four of five logs, of a feature with two values and two actions."""
    return float(-(ndtri(CHANCE / max(looked, 1) / 2) + ndtri(0.2)) / np.sqrt(max(rows, 1)))


def _propensities_vary(log: Log) -> bool:
    [(spread,)] = log.source.run(f"""
        SELECT max(high / low) FROM (SELECT max(propensity) AS high, min(propensity) AS low FROM roles
        WHERE {log.choice} AND propensity > 0 GROUP BY action)""")
    return spread is not None and float(spread) > 1.001


def _dependences(log: Log) -> list[Dependence]:
    """V or η of the action against each feature and the segment, over rows with a choice."""
    chosen = log.choice_of("r")

    def beside_action(feature: str) -> str:
        # The feature is evaluated before the join: a column of the log may have the name of a role.
        return f"""FROM (SELECT {ROW} AS place, {feature} AS value FROM log_numbered) s
            JOIN roles r ON r.row = s.place WHERE {chosen}"""

    found = []
    for term in log.categorical[:MAX_FEATURES]:
        table = log.source.run(f"""
            SELECT s.value, r.action, count(*) {beside_action(f"CAST({term.sql} AS VARCHAR)")}
            GROUP BY ALL ORDER BY count(*) DESC LIMIT {MAX_VALUES}""")
        found.append(Dependence(term.text, *cramers_v(_contingency(table))))
    table = log.source.run(f"""
        SELECT p.action, r.action, count(*)
        FROM links l JOIN roles p ON p.row = l.row JOIN roles r ON r.row = l.next_row
        WHERE {chosen} GROUP BY ALL""")
    found.append(Dependence("the action before", *cramers_v(_contingency(table))))  # campaigns that go on for days
    if log.campaign.log.segment:
        table = log.source.run(
            f"SELECT CAST(segment AS VARCHAR) AS value, action, count(*) FROM roles WHERE {log.choice} GROUP BY ALL"
        )
        found.append(Dependence("segment", *cramers_v(_contingency(table))))
    for term in log.numeric[:MAX_FEATURES]:
        rows = log.source.run(f"""
            SELECT count(s.value), avg(s.value), var_pop(s.value) {beside_action(term.sql)} AND isfinite(s.value)
            GROUP BY r.action""")
        groups = np.array([row for row in rows if row[0]], np.float64).reshape(-1, 3)
        found.append(Dependence(term.text, *correlation_ratio(groups)))
    return found


def _contingency(rows: list[tuple[object, ...]]) -> NDArray[np.float64]:
    """`[values, actions]` counts."""
    values = {value: i for i, value in enumerate(dict.fromkeys(row[0] for row in rows))}
    actions = {action: i for i, action in enumerate(dict.fromkeys(row[1] for row in rows))}
    table = np.zeros((len(values), len(actions)))
    for value, action, count in rows:
        table[values[value], actions[action]] += float(count)  # type: ignore[arg-type]
    return table


def cramers_v(table: NDArray[np.float64]) -> tuple[float, float]:
    """Cramér's V of a table of counts `[R, C]`, corrected for bias, and its p-value; rare rows are put together."""
    rare = table.sum(axis=1) * table.sum(axis=0).min(initial=np.inf) < EXPECTED * table.sum()
    if rare.sum() > 1:
        table = np.concatenate([table[~rare], table[rare].sum(axis=0, keepdims=True)])
    n, (r, c) = table.sum(), table.shape
    if n < 2 or r < 2 or c < 2:
        return 0.0, 1.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    phi = float(((table - expected) ** 2 / expected).sum() / n)
    p_value = float(chdtrc((r - 1) * (c - 1), phi * n))
    phi = max(0.0, phi - (r - 1) * (c - 1) / (n - 1))
    rows, columns = r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)
    return float(np.sqrt(phi / max(min(rows, columns) - 1, 1e-12))), p_value


def correlation_ratio(groups: NDArray[np.float64]) -> tuple[float, float]:
    """η of a number by group, corrected for bias, and its p-value. `groups`: `[G, 3]` count, mean, variance."""
    if len(groups) < 2:
        return 0.0, 1.0
    n, mean, variance = groups.T
    size = max(float(np.abs(mean).max()), float(np.sqrt(variance).max()))
    if not 0 < size < np.inf:  # no spread, or numbers whose squares are beyond those of a computer
        return 0.0, 1.0
    mean, variance = mean / size, (np.sqrt(variance) / size) ** 2
    total = n.sum()
    between = float((n * (mean - (n * mean).sum() / total) ** 2).sum())
    within = float((n * variance).sum())
    if total <= len(groups) or between + within <= 0:
        return 0.0, 1.0
    chance = within / (total - len(groups)) * (len(groups) - 1)  # what `between` is expected to be by chance alone
    p_value = float(fdtrc(len(groups) - 1, total - len(groups), between / chance)) if chance > 0 else 0.0
    return float(np.sqrt(max(0.0, between - chance) / (between + within))), p_value
