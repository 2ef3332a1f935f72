"""Stated propensities held against the log: what no log drawn with them would show, but by chance.

If they are true, two sums over rows with a choice cannot come out high, whatever users and features are, overall or
among the users of any segment:

* E Σᵢ 1[aᵢ = a] / pᵢ is the number of rows in which a had a chance, so at most the rows that allow it and whose given
  action was not certain (p = 1) to be another. Below that number it contradicts nothing: a may have had no chance.
* Where some action has a probability m > 1/2, the others are given with 1 − m: E Σᵢ 1[pᵢ > 1/2] (1 − pᵢ) / pᵢ is at
  most the number of rows with pᵢ ≤ 1/2. This finds the chance of the likely action stated in every row.

Where every action has one propensity in all rows (a plain draw) and no list limits it, an action that comes too rarely
contradicts it as well: number ~ Binomial(rows, p).

The variances of the sums are estimated by Σᵢ (1 − pᵢ) / pᵢ² over the same rows. Rare actions cannot raise a false
alarm: a sum of n inverse propensities lies at most √n of its own standard errors high. States may depend on what was
given before: the differences are a martingale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scipy.special import bdtr, ndtri

from outlay.core.actions import Given, named
from outlay.logs.findings import Finding
from outlay.logs.roles import Log
from outlay.ops.importance import MATTERS
from outlay.ops.intervals import FARTHEST

FALSE_ALARM = 1e-6  # chance of one in a log whose propensities are true, over all actions and segments
ROUNDING = 0.005  # absolute, of a propensity near 1: two decimals
SAME = 1e-6  # relative: propensities so close are one
SHOWN = 3  # contradictions in words
WAY_OUT = (
    "Give, in each row, the chance that its action had before it was drawn; mark rows that only kept an earlier "
    "draw with log.forced, and name the allowed actions with log.eligible where some could not be given; let "
    "neither log.where nor log.segment depend on the action given. "
)
_Key = tuple[str | None, float | None]  # segment (None: all users), action (None: the less likely ones)


@dataclass(frozen=True)
class Claim:
    """What the stated propensities say of an action, and what the log shows.

    Attributes:
        action: the value; None: whichever is less likely where a propensity above 1/2 is stated.
        segment: of the user's first row; None: all users.
        rows: where it could have been given.
        given: rows in which it was.
        expected: rows in which it had been given if the propensities were true.
        z: how far the log is off, in standard errors; above 0 where true propensities cannot be, but by chance; below,
            where they can, unless the draw is plain.
        matters: whether it is further off than rounding explains and values bear.
        plain: it says that an action of a plain draw came too rarely.
    """

    action: Given | None
    segment: str | None
    rows: int
    given: int
    expected: float
    z: float
    matters: bool
    plain: bool = False

    @property
    def against(self) -> float:
        """By how many standard errors it contradicts the propensities."""
        return -self.z if self.plain else self.z

    def __str__(self) -> str:
        """The claim in words, with its numbers."""
        place = f" in segment {self.segment!r}" if self.segment is not None else ""
        if self.action is None:
            return (
                f"by the propensities above 1/2 a less likely action is to be expected in {self.expected:,.0f} rows"
                f"{place}, and was given in {self.given:,} ({self.z:.1f} standard errors)"
            )
        return (
            f"action {named(self.action)} was given in {self.given / self.rows:.1%} of {self.rows:,} rows{place}, by "
            f"its propensities {self.expected / self.rows:.1%} were to be expected ({self.against:.1f} standard errors)"
        )


@dataclass(frozen=True)
class Claims:
    """All claims of a log's propensities.

    Attributes:
        overall: action → its claim over all users; without actions that were never given.
        contradicted: those beyond chance, the largest z first; segments only where all users together do not show it.
        certain: whether every propensity is 1.
    """

    overall: dict[float, Claim]
    contradicted: tuple[Claim, ...]
    certain: bool

    @property
    def refused(self) -> bool:
        """Whether a contradiction is large enough to matter."""
        return any(claim.matters for claim in self.contradicted)

    def findings(self, choices: int) -> list[Finding]:
        """What is wrong with the propensities of this many rows with a choice."""
        if self.certain:
            message = "is 1 in every row with a choice, so by its own word the log never had one."
            return [Finding("error", "log.propensity", message, WAY_OUT + "Or leave the key out.", choices)]
        count = len(self.contradicted)
        if self.refused:
            message = f"the propensities contradict the log: {self}."
            way_out = WAY_OUT + "Or leave the key out: the chances are then fitted to the log."
            return [Finding("error", "log.propensity", message, way_out, count)]
        if self.contradicted:
            message = f"the propensities are a little off, beyond chance: {self}."
            return [Finding("warning", "log.propensity", message, "If they are rounded, give more digits.", count)]
        return []

    def __str__(self) -> str:
        """The contradictions in words: the worst few, those that matter first."""
        ordered = sorted(self.contradicted, key=lambda claim: not claim.matters)
        more = f"; and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
        return "; ".join(str(claim) for claim in ordered[:SHOWN]) + more


def claims(log: Log, actions: list[float]) -> Claims:
    """Hold the stated propensities against the linked log; each must be in (0, 1] where there is a choice.

    Args:
        log: with the tables `roles`, `users` and `links`.
        actions: those of rows that list none.
    """
    run = log.source.run
    _count(log)
    sums: dict[_Key, list[float]] = {}
    listed = f"[{', '.join(f'CAST({action!r} AS DOUBLE)' for action in actions)}]"
    for segment, *row in run(f"""
        SELECT segment, a, sum(n), sum(n) FILTER (a = action),
            sum(implied) FILTER (a = action), sum(variance) FILTER (a = action)
        FROM (SELECT *, unnest(list_distinct(coalesce(allowed, {listed}))) AS a FROM drawn)
        WHERE a = action OR NOT certain GROUP BY ALL
        UNION ALL SELECT segment, NULL, sum(likely), sum(n - likely), sum(others), sum(others_variance)
        FROM drawn GROUP BY ALL"""):
        for place in (None, segment):
            _add(sums, (place, row[0]), row[1:])
    [(segments, certain)] = run("SELECT count(DISTINCT segment), bool_and(certain) FROM drawn")
    found = []
    for (place, action), row in sums.items():
        if place is not None and segments == 1:
            continue
        if action is None and row[2]:
            found.append(_of_others(place, *row))
        elif action is not None and row[1]:
            found.append(_of_action(action, place, *row))
    # What comes too often says all that what comes too rarely would; half of the level is for either.
    beyond = _beyond(found)
    if not beyond and not log.campaign.log.eligible:
        beyond = _beyond(_too_rare(sums, one=segments == 1))

    def told(claim: Claim) -> Claim:
        return claim if claim.action is None else replace(claim, action=log.campaign.given(float(claim.action)))

    seen = {claim.action: claim.matters for claim in beyond if claim.segment is None}
    return Claims(
        overall={float(c.action): told(c) for c in found if c.segment is None and c.action is not None and not c.plain},
        contradicted=tuple(
            told(c) for c in beyond if c.segment is None or c.action not in seen or (c.matters and not seen[c.action])
        ),
        certain=bool(certain),
    )


def _count(log: Log) -> None:
    """Table `drawn`: counts and sums of the rows with a choice, in one pass; lists of allowed actions are few."""
    allowed = "r.eligible" if log.campaign.log.eligible else "CAST(NULL AS DOUBLE[])"
    segment, joined = "'all'", ""
    if log.campaign.log.segment:
        segment = "coalesce(CAST(f.segment AS VARCHAR), 'missing')"
        joined = "JOIN links l ON l.row = r.row JOIN users u ON u.id = l.id JOIN roles f ON f.row = u.first_row"
    log.source.run(f"""
        CREATE OR REPLACE TEMP TABLE drawn AS
        SELECT {segment} AS segment, r.action, r.propensity = 1 AS certain, {allowed} AS allowed, count(*) AS n,
            sum(1 / r.propensity) AS implied,
            sum((1 - r.propensity) / r.propensity / r.propensity) AS variance,
            count(*) FILTER (r.propensity > 0.5) AS likely,
            coalesce(sum(1 / r.propensity - 1) FILTER (r.propensity > 0.5), 0) AS others,
            coalesce(sum((1 - r.propensity) / r.propensity / r.propensity) FILTER (r.propensity > 0.5), 0)
                AS others_variance
        FROM roles r {joined} WHERE {log.choice_of("r")} GROUP BY ALL""")


def _add(table: dict[_Key, list[float]], key: _Key, row: list[float | None]) -> None:
    before = table.get(key, [0.0] * len(row))
    table[key] = [old + float(new or 0) for old, new in zip(before, row, strict=True)]


def _of_action(action: float, segment: str | None, rows: float, given: float, implied: float, variance: float) -> Claim:
    z = _standardised(implied - rows, variance)
    return Claim(action, segment, int(rows), int(given), given * rows / implied, z, implied > (1 + MATTERS) * rows)


def _beyond(found: list[Claim]) -> list[Claim]:
    """Claims that contradict the propensities beyond chance, the worst first."""
    limit = -float(ndtri(FALSE_ALARM / 2 / max(len(found), 1)))
    return sorted((claim for claim in found if claim.against > limit), key=lambda claim: -claim.against)


def _too_rare(sums: dict[_Key, list[float]], *, one: bool) -> list[Claim]:
    """Claims about actions of a plain draw, overall and in segments."""
    found = []
    for place in dict.fromkeys(segment for segment, _ in sums):
        rows = {a: row for (segment, a), row in sums.items() if segment == place and a is not None and row[1]}
        if (place is not None and one) or not all(_constant(row) for row in rows.values()):
            continue
        for action, (could, given, implied, _) in rows.items():
            p = given / implied
            if p < 1 and given < p * could:
                # As far out as a normal has the tail that the binomial has; beyond a float's tails it is far enough.
                z = -min(-float(ndtri(bdtr(given, int(could), p))), FARTHEST)
                found.append(
                    Claim(
                        action,
                        place,
                        int(could),
                        int(given),
                        p * could,
                        z,
                        given < (1 - MATTERS) * p * could,
                        plain=True,
                    )
                )
    return found


def _constant(row: list[float]) -> bool:
    """Whether an action has one propensity in all its rows: no other values have so small a sum of squares."""
    _, given, implied, variance = row
    p = given / implied
    if not 0 < p <= 1:
        return False
    return variance <= given * (1 - p) / p / p * (1 + SAME) + SAME


def _of_others(segment: str | None, likely: float, given: float, expected: float, variance: float) -> Claim:
    off = expected - given
    matters = off > max(MATTERS * expected, ROUNDING * likely)
    return Claim(None, segment, int(likely + given), int(given), expected, _standardised(off, variance), matters)


def _standardised(off: float, variance: float) -> float:
    """`off` in standard errors; 0 for actions that were always certain, and for inverses beyond a float."""
    return off / variance**0.5 if 0 < variance < float("inf") else 0.0
