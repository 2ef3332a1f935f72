"""The page of `outlay frontier`: what more money would buy, with a slider over budgets, complete in itself.

Every budget that the slider can stand on is put into words and places here; the page's script only shows them. The
drawings are plain SVG, so that they are there without the script as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from outlay.core.version import __version__
from outlay.pages import words
from outlay.pages.frontier_places import Drawing, Frame, aired
from outlay.pages.frontier_words import Point, Say, beside_old, beside_run, falls, headline, look, loses
from outlay.pages.page import template
from outlay.pages.style import middle

TABLE_STEPS = 10  # of the curve, in the table
NEAR = 0.25  # of the curve's width: a limit further off is not drawn


def render(content: Mapping[str, Any]) -> str:
    """The page.

    Args:
        content: frontier.json, as `outlay.jobs.frontier.Frontier.to_dict` has it. Numbers are unrounded; a floor and
            its costs are not negated.
    """
    say, asked = Say.of(content), content["asked"]
    points = _distinct([*content["curve"], *(p for p in asked if p["budget"] <= content["most"])])
    start = min(range(len(points)), key=lambda i: abs(points[i]["budget"] - asked[0]["budget"]))
    limit, near = say.budgets[say.place].limit, NEAR * (content["most"] - content["least"])
    drawn = [limit] if content["least"] - near <= limit <= content["most"] + near else []
    old = content["old"]
    frame = Frame.around(
        [p["budget"] for p in points] + drawn + ([] if old is None else [old["spend"][say.place]]),
        [p[end] for p in points for end in ("low", "high")]
        + ([] if old is None else [old["low"], old["high"]])
        + [y for _, y in _sure(points, say)],
    )
    below = Frame(*frame[:2], *aired([0.0, *middle([p["marginal"] for p in points])], 0.06))
    records = [
        {"say": say.panel(p), "curve": frame.dot(p["budget"], p["value"]),
         "marginal": below.dot(p["budget"], min(p["marginal"], below.top))}
        for p in points
    ]  # fmt: skip
    rows = _distinct([*content["curve"][::TABLE_STEPS], *asked])
    return template("frontier.html").render(
        c=content,
        words=words,
        say=say,
        money=say.budgets[say.place],
        limit_at=[frame.place(x, frame.top)[0] for x in drawn],
        ends=[frame.place(points[i]["budget"], frame.top)[0] for i in (0, -1)],
        plot=_curve(content, points, frame, say),
        marginals=Drawing(*below.ticks(), below.line([p["budget"] for p in points], [p["marginal"] for p in points])),
        headline=headline(asked[0], say),
        beside_old=beside_old(content, say),
        falls=falls(content["curve"], say),
        look=look(content),
        beside_run=beside_run(content),
        records=records,
        start=start,
        rows=[(say.panel(p), _whose(p, asked, limit), _marginal_cell(p), p["certified"], loses(p)) for p in rows],
        version=__version__,
    )


def _curve(found: Mapping[str, Any], points: Sequence[Point], frame: Frame, say: Say) -> Drawing:
    """Budget against objective, with what else was measured."""
    budgets, old = [p["budget"] for p in points], found["old"]
    around = [*budgets, *budgets[::-1]], [p["low"] for p in points] + [p["high"] for p in points][::-1]
    sure = _sure(points, say)
    open_runs = [list(run) for certified, run in groupby(points, lambda p: p["certified"]) if certified is False]
    single = [(p["spend"][say.place], p["value"]) for p in found["policies"]]
    drawing = Drawing(
        *frame.ticks(),
        line=frame.line(budgets, [p["value"] for p in points]),
        band=frame.line(*around) + "Z",
        open="".join(
            frame.line([p["budget"] for p in run], [p["value"] for p in run]) + ("h0" if len(run) == 1 else "")
            for run in open_runs
        ),
        sure=frame.line(*zip(*sure, strict=True)) if sure else "",
        dots="".join(frame.dot(*xy) for xy in single if frame.holds(*xy)),
    )
    if old is None:
        return drawing
    spend = old["spend"][say.place]
    return drawing._replace(
        old=frame.dot(spend, old["value"]),
        old_at=frame.place(spend, old["value"]),
        old_bar=frame.line([spend, spend], [old["low"], old["high"]]),
    )


def _sure(points: Sequence[Point], say: Say) -> list[tuple[float, float]]:
    """Where the curve lies at least: the old policy and the certified gain; nothing before the look."""
    if say.old is None:
        return []
    return [(p["budget"], say.old + p["gain_bound"]) for p in points if p["gain_bound"] is not None]


def _whose(point: Point, asked: Sequence[Point], limit: float) -> str:
    """What a row of the table is marked with; most are not."""
    if point["budget"] == limit:
        return "the campaign’s"
    return "asked for" if any(point["budget"] == other["budget"] for other in asked) else ""


def _marginal_cell(point: Point) -> str:
    return words.number(0.0 if point["slack"] else max(point["marginal"], 0.0))


def _distinct(points: Sequence[Point]) -> list[Point]:
    """By budget, each once."""
    ordered = sorted(points, key=lambda p: float(p["budget"]))
    return ordered[:1] + [p for before, p in pairwise(ordered) if p["budget"] > before["budget"]]
