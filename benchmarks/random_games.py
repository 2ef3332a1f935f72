"""Random games with a known optimum: what each mixing rule loses, what a proof costs, what noise does, how fast it is.

    python benchmarks/random_games.py                         # 120 games, some minutes on two cores
    python benchmarks/random_games.py --instances 2           # a quick run
    python benchmarks/random_games.py --images docs/images    # also draws docs/game.md's figures

Results: the tables of docs/game.md as Markdown on stdout, every record in benchmarks/out/random_games.json, the
figures as SVG. The games are in random_games_instances.py, the studies in random_games_{rules,noise,speed}.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import charts
import random_games_noise as noise
import random_games_rules as rules
import random_games_speed as speed
import random_games_tables as tables
from outlay.learning.mixing import RULES
from random_games_instances import specs
from results import OUT, keep

WORKERS = 2
Record = dict[str, Any]


def told(what: str, records: Iterable[Any]) -> list[Any]:
    """All of them; how long it took, on stderr."""
    began = time.perf_counter()
    found = list(records)
    print(f"{what}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return found


def median_course(games: list[Record]) -> list[Record]:
    """The median over games after so many best responses; column generation stays where it has ended."""
    rows = [point for game in games for point in game["course"]]
    kinds = {(row["rule"], row["responses"]) for row in rows if row["rule"] in RULES}
    median = [
        {
            "rule": name,
            "responses": count,
            **{
                key: float(np.median([r[key] for r in rows if (r["rule"], r["responses"]) == (name, count)]))
                for key in ("lost", "violation")
            },
        }
        for name, count in sorted(kinds, key=lambda kind: kind[1])
    ]
    lines = [[p for p in game["course"] if p["rule"] == charts.COLUMN_GENERATION] for game in games if game["course"]]
    for i in range(max(map(len, lines), default=0)):
        now = [line[min(i, len(line) - 1)] for line in lines]
        values = {key: float(np.median([point[key] for point in now])) for key in ("lost", "violation")}
        median.append({"rule": charts.COLUMN_GENERATION, "responses": 1 + i, **values})
    return median


def noise_panels(found: list[Record]) -> list[Record]:
    """The means that the figure of noise shows."""
    shown = {
        ("optimism of the reward", "solid: one split, dashed: two"): {
            "solid": ("plain", "optimism_one_split"),
            "dashed": ("plain", "optimism_two_splits"),
        },
        ("overspends, no margin", "share of the draws"): {"solid": ("plain", "over")},
        ("overspends, with the margin", "solid: choosing, dashed: throughout"): {
            "solid": ("choosing", "over"),
            "dashed": ("throughout", "over"),
        },
    }
    return [
        {
            "panel": panel,
            "line": line,
            "rule": name,
            "noise": level,
            "value": float(
                np.mean([record[way][key] for record in found if (record["rule"], record["noise"]) == (name, level)])
            ),
        }
        for panel, lines in shown.items()
        for line, (way, key) in lines.items()
        for name in RULES
        for level in noise.NOISE
    ]


def main() -> None:
    """Study, print and write."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--instances", type=int, default=20, help="games for each of 3 × 2 sizes")
    options.add_argument("--draws", type=int, default=4, help="of the noise, a game and level")
    options.add_argument("--drift-steps", type=int, default=100_000)
    options.add_argument("--images", type=Path, default=OUT, help="folder for the figures")
    given = options.parse_args()
    games = specs(given.instances)
    # One thread of linear algebra a process: the matrices are small.
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        played = told("rules", pool.map(rules.study, games))
        noisy = told("noise", pool.map(partial(noise.study, draws=given.draws), games))
        found = [record for records in noisy for record in records]
        # One at a time, so that nothing runs beside what is timed.
        timed: list[Record] = pool.submit(speed.problems, games).result()
        steps: list[Record] = pool.submit(speed.steps, given.drift_steps).result()

    printed = {
        "Where the rules end": tables.ends(played),
        "By size, OGD on scaled costs": tables.ends_by_size(played),
        "Best responses of column generation": tables.responses(played, timed),
        "Rounds of the play": tables.rounds(played),
        "Noise": tables.noise_plain(found),
        "Noise, with a margin": tables.noise_margin(found),
        "Speed": tables.speed(steps, timed),
    }
    for title, table in printed.items():
        print(f"### {title}\n\n{table}\n")
    print(f"Largest gap that column generation left: {max(game['gap'] for game in played):.1e}.")

    m, discount = rules.COURSE_OF
    given.images.mkdir(parents=True, exist_ok=True)
    figures = {
        "game-course.svg": charts.course(
            median_course(played),
            f"{m} limits, γ {discount:g}, OGD on scaled costs: median over games ({given.instances})",
        ),
        "game-noise.svg": charts.noise(
            noise_panels(found), f"Means over all games ({len(games)}) and draws of the noise ({given.draws} each)"
        ),
    }
    for name, drawing in figures.items():
        (given.images / name).write_text(drawing, encoding="utf-8")
    keep("random_games", games=played, noise=found, problems=timed, steps=steps)


if __name__ == "__main__":
    main()
