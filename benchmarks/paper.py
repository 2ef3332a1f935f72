"""Every table and figure of the paper with its command, the paper's figures beside ours: what `make paper` runs.

    python benchmarks/paper.py                          # all of it, at the paper's size (an hour on two cores)
    python benchmarks/paper.py table-1 --users 60000    # a part, in small
    python benchmarks/paper.py page                     # the page again, from the figures of the last runs

Parts: `table-1`, the effects of 3 yuan over 1 by group and span; `table-2`, the methods at 3 yuan on day one, and with
them the figure of stored parameters, both on *habit*; `thirty-day`, the same methods where looking ahead pays; `ab`,
the A/B test (`examples/paper_ab.py`). What a part found goes to benchmarks/out/paper-PART.json, with the date and the
commit, and from there between the marks of `docs/paper.md`: nobody types a figure. A part that was never run has none.

Source: the paper (WSDM'23), Tables 1 and 2, Figure 2, and the section on online results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import msgspec

from charts import svg
from fit_habit import DAYS, EFFECTS, effects
from outlay.comparing.results import CONTROLS, ORIGINAL, Comparison, MethodRow, StoredCount
from outlay.pages.comparison import stored
from outlay.simulators import habit
from paper_orderings import count, orderings
from results import OUT, head, keep

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "paper.md"
FIGURE = ROOT / "docs" / "images" / "paper-stored.svg"
FOLDER = Path("runs/paper")
USERS = 600_000  # a week of them are the paper's 4.2 million samples
LONG_USERS = 100_000  # of the thirty-day campaign: 3 million rows
SEEDS = 5
RULES = ("single-best", "aim-mean", "aim-greedy")
ROWS = ("DeepFM*", "DIN*", *(f"*, {rule}" for rule in RULES), "frontier, counted")
PAPER = {  # active days after 1, 3 and 7 days: the simplified data, then the full data
    "DeepFM, 1-day label": ((0.5997, 2.2032, 4.7806), (0.6396, 2.3232, 5.2114)),
    "DIN, 1-day label": ((0.6010, 2.2070, 4.7854), (0.6468, 2.3306, 5.2237)),
    "DDQN, single-best": ((0.5272, 2.3597, 4.9418), (0.5981, 2.5014, 5.6306)),
    "DDQN, aim-mean": ((0.5172, 2.3433, 4.9360), (0.5779, 2.4819, 5.5759)),
    "DDQN, aim-greedy": ((0.5339, 2.3640, 4.9732), (0.5998, 2.5213, 5.6361)),
    "EDRR, single-best": ((0.5741, 2.4003, 4.9620), (0.6156, 2.5243, 5.6390)),
    "EDRR, aim-mean": ((0.5572, 2.3849, 4.9360), (0.6045, 2.5144, 5.6255)),
    "EDRR, aim-greedy": ((0.5893, 2.4193, 5.1153), (0.6163, 2.5253, 5.6432)),
    "BCQ, single-best": ((0.5770, 2.4068, 5.0608), (0.6150, 2.5318, 5.6901)),
    "BCQ, aim-mean": ((0.5613, 2.4016, 5.0461), (0.6159, 2.5310, 5.6685)),
    "BCQ, aim-greedy": ((0.5846, 2.4266, 5.1911), (0.6205, 2.5454, 5.7020)),
}


def table_1(users: int, seeds: int) -> None:
    """Half of the users keep 1 yuan for a week, half 3."""
    del seeds  # nothing is trained
    run(f"outlay simulate habit --held 1,3 --users {users} --out {FOLDER}/held")
    found = json.loads(run(f"outlay check {FOLDER}/held/campaign.toml --json", read=True))
    keep("paper-table-1", users=users, effects=found["effects"])


def table_2(users: int, seeds: int) -> None:
    """The methods of Table 2 on *habit*, with the paper's preset, at 3 yuan on day one."""
    _compared("habit", users, seeds, "table-2", "--immediate 3")


def thirty_day(users: int, seeds: int) -> None:
    """The same on *thirty-day*, at what the log spends on day one."""
    _compared("thirty-day", min(users, LONG_USERS), seeds, "thirty-day")


def ab(users: int, seeds: int) -> None:
    """BCQ with AIM-greedy against DIN with the linear program; it writes its own figures."""
    del users, seeds  # `examples/paper_ab.py` has its own
    said = subprocess.run([sys.executable, ROOT / "examples" / "paper_ab.py", "--json", OUT / "paper-ab-found.json"])
    if said.returncode:
        sys.exit(said.returncode)
    keep("paper-ab", **json.loads((OUT / "paper-ab-found.json").read_text(encoding="utf-8")))


def _compared(world: str, users: int, seeds: int, part: str, options: str = "") -> None:
    campaign, out, began = FOLDER / world / "campaign.toml", FOLDER / f"{world}-compared", time.monotonic()
    if not campaign.exists():
        run(f"outlay simulate {world} --users {users} --out {FOLDER}/{world}")
        campaign.write_text(campaign.read_text(encoding="utf-8") + '\n[train]\npreset = "paper"\n', encoding="utf-8")
    rows = " ".join(f"--row {shlex.quote(row)}" for row in ROWS)
    run(
        f"outlay compare {campaign} --out {out} --seeds {seeds} --label-days 1 --oracles bcq,edrr,ddqn {options} {rows}"
    )
    comparison = json.loads((out / "comparison.json").read_text(encoding="utf-8"))
    keep(f"paper-{part}", users=users, minutes=(time.monotonic() - began) / 60, comparison=comparison)


PARTS = {"table-1": table_1, "table-2": table_2, "thirty-day": thirty_day, "ab": ab}


def page() -> None:
    """Write what was found between the marks of the page, and the figure beside it."""
    text = PAGE.read_text(encoding="utf-8")
    for mark, block in blocks():
        text = filled(text, mark, block)
    PAGE.write_text(text, encoding="utf-8")


def filled(text: str, mark: str, block: str) -> str:
    """The page with another block between its two marks, `<!-- MARK -->` and `<!-- /MARK -->`.

    Raises:
        ValueError: if the marks are not there, once.
    """
    new, times = re.subn(
        rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", lambda at: f"{at[1]}\n{block}\n\n{at[2]}", text, flags=re.DOTALL
    )
    if times != 1:
        raise ValueError(f"the page has the marks of {mark} {times} times, not once")
    return new


def blocks() -> Iterator[tuple[str, str]]:
    """The mark and the text of every part that was run."""
    if found := _kept("table-1"):
        yield "table-1", f"{first_table(found['effects'])}\n\n{_made(found, 'users')}"
    for part in ("table-2", "thirty-day"):
        if found := _kept(part):
            comparison = msgspec.convert(found["comparison"], Comparison)
            made = _made(
                found, "users", f", {comparison.seeds} trainings of each method, {found['minutes']:.0f} minutes"
            )
            controls = ("immediate",) if part == "table-2" else ("immediate", "total")
            yield part, "\n\n".join([*(controlled(comparison, control, part) for control in controls), made])
            if part == "table-2":
                chart = alt.Chart.from_dict(stored(stored_lines(comparison)[1]))
                FIGURE.write_text(svg(chart, "stored parameters over the training"), encoding="utf-8")
                yield "stored", f"{stored_table(comparison)}\n\n{made}"
    if found := _kept("ab"):
        test = f"users in the test for {found['days']} days, ramp {found['ramp']}, after a log of {found['logged']:,}"
        yield "ab", f"{ab_table(found)}\n\n{_made(found, test)}"


def first_table(found: Sequence[dict[str, Any]]) -> str:
    """Table 1 with its last column: the paper's figures, what `check` finds in the log, and the model's own."""
    at = {(row["segment"], row["days"]): row for row in found}
    exact = dict(zip(EFFECTS, effects(habit.model().cmdp()), strict=True))
    lines = [head("DAU change over", "", "inactive users", "active users", "inactive / active − 1")]
    for place, days in enumerate(DAYS):
        inactive, active = (at[segment, days] for segment in ("inactive", "active"))
        ours = [f"{row['effect']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})" for row in (inactive, active)]
        theirs, true = ([side[place] for side in sides.values()] for sides in (EFFECTS, exact))
        span = "1 day" if days == 1 else f"{days} days"
        lines += [
            f"| {span} | paper | {theirs[0]:+.2f} | {theirs[1]:+.2f} | {PAPER_RATIOS[days]} |",
            f"| | ours | {ours[0]} | {ours[1]} | {inactive['effect'] / active['effect'] - 1:.0%} |",
            f"| | *habit*, exact | {true[0]:+.3f} | {true[1]:+.3f} | {true[0] / true[1] - 1:.0%} |",
        ]
    return "\n".join(lines)


PAPER_RATIOS = {1: "32%", 3: "72%", 7: "82%"}  # as printed: its effects are rounded


def controlled(comparison: Comparison, control: str, part: str) -> str:
    """The methods under one control, and which orderings hold there."""
    table = second_table(comparison, control, beside=part == "table-2")
    return f"**{CONTROLS[control].capitalize()}:**\n\n{table}\n\n{_orderings(comparison, control)}"


def second_table(comparison: Comparison, control: str, *, beside: bool) -> str:
    """True active days after each span, means over seeds ± their standard deviation, and what was spent."""
    spans = comparison.report_days
    theirs = ["paper, simplified", "paper, full"] if beside else []
    columns = [f"{k} day" if k == 1 else f"{k} days" for k in spans]
    spent = {f"{comparison.money}@1": "spent on day one", comparison.money: "spent per decision"}
    lines = [head("method", *theirs, *(f"ours, {column}" for column in columns), *spent.values())]
    for row in comparison.under(control):
        if not row.figures or row.re_solved:
            continue
        paper = [" / ".join(f"{value:.4f}" for value in each) for each in PAPER.get(row.name, ())] or ["", ""]
        ours = [_plus_minus(row, f"reward@{k}") for k in spans]
        cells = [row.name, *(paper if beside else []), *ours, *(_plus_minus(row, cost) for cost in spent)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _plus_minus(row: MethodRow, target: str) -> str:
    figure = row.figures.get(target)
    if figure is None or figure.truth is None:
        return "–"
    return f"{figure.truth:.4f}" + (f" ± {figure.truth_sd:.4f}" if figure.truth_sd is not None else "")


def _orderings(comparison: Comparison, control: str) -> str:
    """The claims of Table 2, each with its verdict here."""
    every = orderings(comparison.rows, comparison.budgets, comparison.report_days)
    judged = [one for one in every if one.control == control]
    lines = [head("the paper's ordering", "here", "first", "second")]
    lines += [
        f"| {one.claim} | {one.verdict} | {one.first} {one.first_value:.4f} | {one.second} {one.second_value:.4f} |"
        for one in judged
    ]
    return "\n".join([*lines, "", f"{count(judged)}."])


def stored_lines(comparison: Comparison) -> tuple[str, dict[str, Sequence[StoredCount]]]:
    """The first oracle, and by rule its parameters over the training, those of the original method last."""
    first = next(row for row in comparison.rows if row.name in comparison.stored)
    named = {rule: f"{first.name.partition(', ')[0]}, {rule}" for rule in RULES} | {ORIGINAL: ORIGINAL}
    return first.name.partition(", ")[0], {rule: comparison.stored[name] for rule, name in named.items()}


def stored_table(comparison: Comparison) -> str:
    """Parameters in store at the end of the training, and how many networks they are."""
    oracle, lines = stored_lines(comparison)
    one = lines["single-best"][-1].mean
    rows = [head("rule", "parameters in store at the end", "networks")]
    for name, course in lines.items():
        spread = f" ± {course[-1].sd:,.0f}" if course[-1].sd else ""
        rows.append(f"| {oracle}, {name} | {course[-1].mean:,.0f}{spread} | {course[-1].mean / one:.0f} |")
    return "\n".join(rows)


def ab_table(found: dict[str, Any]) -> str:
    """What the paper's test found and what ours did, with the truth of ours."""
    lines = [head("BCQ with AIM-greedy against DIN with the linear program", "paper", "ours", "in truth")]
    for name, metric, paper in (("active days", "active", "+0.6%"), ("coupon money", "cost", "−0.8%")):
        ours = found["lifts"][metric]
        interval = f"{ours['value']:+.1%} ({ours['low']:+.1%} to {ours['high']:+.1%})"
        lines.append(f"| {name} | {paper} | {interval} | {ours['truth']:+.1%} |")
    lines.append(f"| active on a user's first day | lower | – | {found['first_day']:+.1%} |")
    return "\n".join([*lines, "", f"The verdict of our test: “{found['verdict']}”"])


def _made(found: dict[str, Any], users: str, more: str = "") -> str:
    return f"*{found['users']:,} {users}{more}; measured on {found['date']}, commit {found['commit']}.*"


def _kept(part: str) -> dict[str, Any] | None:
    with contextlib.suppress(FileNotFoundError):
        found: dict[str, Any] = json.loads((OUT / f"paper-{part}.json").read_text(encoding="utf-8"))
        return found
    return None


def run(line: str, *, read: bool = False) -> str:
    """A command of outlay, printed as it can be copied; what it printed, if that is to be read."""
    print(f"\n$ {line}", flush=True)
    words = [str(Path(sys.executable).with_name("outlay")), *shlex.split(line)[1:]]
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE if read else None, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout or ""


def main() -> None:
    """Run the parts that are asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "page", []], help="default: all")
    parser.add_argument("--users", type=int, default=USERS, help="of the logs")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="trainings of each method")
    asked = parser.parse_args()
    for part in asked.parts or PARTS:
        if part != "page":
            PARTS[part](asked.users, asked.seeds)
    page()


if __name__ == "__main__":
    main()
