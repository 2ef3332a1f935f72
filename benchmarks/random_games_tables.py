"""The tables of the random games as Markdown: records in, text out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from outlay.learning.mixing import RULES
from random_games_instances import DISCOUNTS, LIMITS
from random_games_noise import NOISE
from random_games_rules import COLUMN_GAPS, COURSE_PLAYER, EVERY_ROUND, PLAY_GAPS, PLAYERS

Record = dict[str, Any]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def ends(games: list[Record]) -> str:
    """Table 1: where each rule ends, over all games."""
    found = [end for game in games for end in game["ends"]]
    kinds = [(player, name) for player in PLAYERS for name in (*RULES, EVERY_ROUND)]
    kinds += [("", name) for name in ("column generation", "bisection", "exact")]
    rows = []
    for player, name in kinds:
        own = [end for end in found if (end["player"], end["rule"]) == (player, name)]
        least, _, most = _spread(own, "spend")
        rows.append(
            [
                player or "–",
                name + (" (m = 1)" if name == "bisection" else ""),
                f"{max(e['members'] for e in own):,}",
                f"{_mean(own, 'feasible'):.0%}",
                _small(_spread(own, "violation")[1]),
                _small(_spread(own, "violation")[2]),
                f"{least:.1%} – {most:.1%}",
                _percent(_spread(own, "lost")[1]),
                _percent(_spread(own, "lost")[2]),
            ]
        )
    head = [
        "λ",
        "rule",
        "members, most",
        "keeps the limits",
        "violation, median",
        "worst",
        "spend of limit, range",
        "uplift lost, median",
        "worst",
    ]
    return markdown(head, rows)


def ends_by_size(games: list[Record], player: str = COURSE_PLAYER) -> str:
    """Table 1b: the same for one player of λ, by number of limits and discount."""
    sizes = [(m, discount) for m in LIMITS for discount in DISCOUNTS]
    rows = []
    for name in RULES:
        cells = []
        for m, discount in sizes:
            own = [
                end
                for game in games
                if (game["num_limits"], game["discount"]) == (m, discount)
                for end in game["ends"]
                if (end["player"], end["rule"]) == (player, name)
            ]
            cells.append(f"{_percent(_spread(own, 'lost')[1])}, {_mean(own, 'feasible'):.0%}")
        rows.append([name, *cells])
    return markdown(["rule", *(f"m = {m}, γ {discount:g}" for m, discount in sizes)], rows)


def responses(games: list[Record], problems: list[Record]) -> str:
    """Table 2: what column generation needs."""
    rows = []
    for m in LIMITS:
        for discount in DISCOUNTS:
            size = {"num_limits": m, "discount": discount}
            own = [game for game in games if size.items() <= game.items()]
            timed = [row for row in problems if size.items() <= row.items()]
            counts = [
                _median_most([game[key][f"{gap:g}"] for game in own], "{:.0f}")
                for key in ("responses", "responses_unsmoothed")
                for gap in COLUMN_GAPS
            ]
            times = [
                _median_most([1e3 * row[key] for row in timed], "{:.1f}")
                for key in ("column_generation", "occupancy_program")
            ]
            rows.append([str(m), f"{discount:g}", *counts, *times])
    gaps = [f"gap {gap:.0e}".replace("e-0", "e-") for gap in COLUMN_GAPS]
    head = ["m", "γ", *gaps, *(f"{gap}, unsmoothed" for gap in gaps), "ms to gap 1e-6", "ms, occupancy program (HiGHS)"]
    return markdown(head, rows)


def rounds(games: list[Record]) -> str:
    """Table 3: rounds of the play until its candidates prove as much."""
    rows = []
    for player in PLAYERS:
        for name in RULES:
            own = [p["rounds"] for game in games for p in game["proofs"] if (p["player"], p["rule"]) == (player, name)]
            cells = []
            for most in PLAY_GAPS:
                taken = [np.inf if p[f"{most:g}"] is None else p[f"{most:g}"] for p in own]
                median = float(np.quantile(taken, 0.5, method="higher"))
                cells += [f"{median:,.0f}" if np.isfinite(median) else "> 1,480", f"{np.isfinite(taken).mean():.0%}"]
            rows.append([player, name, *cells])
    head = ["λ", "rule", "rounds to gap 1e-2, median", "ever", "rounds to gap 1e-3, median", "ever"]
    return markdown(head, rows)


def noise_plain(found: list[Record]) -> str:
    """Table 4: the effect of noise without a margin."""

    def row(own: list[Record]) -> list[str]:
        plain = [record["plain"] for record in own]
        over = [record["overspend"] for record in plain if record["over"]]
        return [
            _signed(_mean(plain, "optimism_one_split")),
            _signed(_mean(plain, "optimism_two_splits")),
            f"{_mean(plain, 'over'):.0%}",
            f"{np.median(over):.1%}" if over else "–",
            f"{max(over):.1%}" if over else "–",
            f"{_mean(plain, 'certified'):.0%}",
        ]

    head = ["optimism, one split", "two splits", "overspends", "by, median", "worst", "certified"]
    return _by_noise(found, head, row)


def noise_margin(found: list[Record]) -> str:
    """Table 5: with the margin, when choosing only and throughout."""

    def row(own: list[Record]) -> list[str]:
        cells = []
        for way in ("choosing", "throughout"):
            records = [record[way] for record in own]
            wrong = float(np.mean([record["certified"] and record["over"] for record in records]))
            cells += [
                f"{_mean(records, 'over'):.0%}",
                f"{_mean(records, 'certified'):.0%}",
                f"{wrong:.1%}",
                _percent(_spread(records, "lost")[1]),
            ]
        return cells

    columns = ["overspends", "certified", "certified and over", "uplift lost, median"]
    head = [f"{way}: {c}" if c == columns[0] else c for way in ("choosing", "throughout") for c in columns]
    return _by_noise(found, head, row)


def _by_noise(found: list[Record], head: list[str], row: Callable[[list[Record]], list[str]]) -> str:
    rows = []
    for noise in NOISE:
        for name in RULES:
            own = [record for record in found if (record["noise"], record["rule"]) == (noise, name)]
            rows.append([f"{noise:.1%}", name, *row(own)])
    return markdown(["noise", "rule", *head], rows)


def speed(steps: list[Record], problems: list[Record]) -> str:
    """Table 6: seconds, and drift."""
    targets = {
        ("aim-mean", 1): "100 µs",
        ("aim-greedy", 1): "100 µs",
        ("aim-mean", 10): "500 µs",
        ("aim-greedy", 10): "500 µs",
        ("lp", 10): "2,000 µs",
    }
    rows = []
    for step in steps:
        if step["rule"] == "drift":
            continue
        after = " after 1,500 vectors" if step["rule"] == "lp" else ""
        rows.append(
            [
                f"{step['rule']} step, m = {step['m']}{after}",
                f"{1e6 * step['median']:,.0f} µs",
                f"{1e6 * step['p99']:,.0f} µs",
                targets[step["rule"], step["m"]],
            ]
        )
    seconds = [1e3 * row["column_generation"] for row in problems]
    p99 = float(np.quantile(seconds, 0.99))
    rows.append(["solve, 50 states, gap 1e-6", f"{np.median(seconds):.1f} ms", f"{p99:.1f} ms", "50 ms"])
    drift = next(step for step in steps if step["rule"] == "drift")
    rows.append(
        [
            f"aim-mean, m = 10: largest error after up to {drift['steps']:,} steps, in units of each coordinate",
            f"{drift['worst']:.1e}",
            "–",
            "1e-9",
        ]
    )
    return markdown(["what", "median", "p99", "target"], rows)


def _spread(records: list[Record], key: str) -> tuple[float, float, float]:
    values = [record[key] for record in records]
    return min(values), float(np.median(values)), max(values)


def _mean(records: list[Record], key: str) -> float:
    return float(np.mean([record[key] for record in records]))


def _median_most(values: list[float], form: str) -> str:
    return f"{form.format(np.median(values))} / {form.format(max(values))}"


def _small(value: float) -> str:
    return "0" if value <= 1e-9 else f"{value:.1e}".replace("e-0", "e-")


def _percent(share: float) -> str:
    return "0" if share < 5e-8 else f"{100 * share:.2g}%"


def _signed(share: float) -> str:
    said = f"{share:+.1%}"
    return said if said.strip("+-") != "0.0%" else "0.0%"
