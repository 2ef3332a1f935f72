"""Commands and Python blocks that pages show run without an error, on a small simulated log.

Each runs by itself, in a copy of a folder that holds the files and runs that the pages name. Commands that take more
than seconds, or need a server's records, are listed here with the reason; `test_documents.py` parses those as well. A
Python block that is not run has a comment before it that gives the reason: `<!-- not run: … -->`.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from test_documents import PAGES, ROOT, commands

import outlay
from command_line import outlay as command

pytestmark = pytest.mark.usefixtures("few_budgets")
NOT_RUN = {
    "outlay serve": "runs until it is stopped; tests/cli/test_serve_command.py starts it",
    "outlay export-log": "needs a ledger; tests/serve/test_serving_document.py runs it after the page's requests",
    "outlay check next/": "needs an exported log; tests/serve/test_serving_document.py",
    "outlay train next/": "needs an exported log; tests/cli/test_export_command.py",
    "outlay experiment analyze": "needs the log of a test; tests/cli/test_experiment_analyze_command.py",
    "outlay compare": "trains every method five times; tests/comparing",
    "outlay check held/": "needs a log with held coupons; tests/jobs",
    "outlay simulate city": "50,000 users of rich states; tests/simulators",
    "outlay prepare campaign.toml --out /shared/": "needs a cluster; tests/cluster",
    "outlay train /shared/": "needs a cluster; tests/cluster",
    "outlay score /shared/": "needs a cluster; tests/cluster",
    "outlay check examples/": "needs real data; tests/examples/test_public_logs.py",
    "outlay train examples/": "needs real data; tests/examples/test_public_logs.py",
    "outlay evaluate runs/c": "needs real data; tests/examples/test_public_logs.py",
    "outlay init log.csv": "needs a log of its own; test_tutorials.py plays it",
    "outlay report runs/c": "needs real data; tests/examples/test_public_logs.py",
}
SMALL = "\n[train]\nlayers = [16, 8]\nbatch = 256\nepochs = 0.1\nmin_steps = 300\nfolds = 1\n"
LINES = dict.fromkeys(line.split("#")[0].strip() for _, line in commands())
RUN = [line for line in LINES if not line.startswith(tuple(NOT_RUN))]
BLOCK = re.compile(r"(?:<!-- not run: (.+?) -->\s+)?```python\n(.*?)```", re.DOTALL)
BLOCKS = [
    (page.name, reason, code)
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]
    for reason, code in BLOCK.findall(page.read_text(encoding="utf-8"))
]


def policy_table(log: pa.Table, actions: list[float]) -> pa.Table:
    """The policy file of a rule that draws every action with the same probability."""
    shares = {f"{action:g}": np.full(log.num_rows, 1 / len(actions)) for action in actions}
    return pa.table({"user_id": log["user_id"], "day": log["day"], **shares})


@pytest.fixture(scope="module")
def folder_of_the_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file and every run that the pages' commands read; shared, so tests work on copies."""
    folder = tmp_path_factory.mktemp("pages")
    campaign = outlay.simulate("habit", folder, users=1500, seed=1)
    with campaign.open("a", encoding="utf-8") as file:
        file.write(SMALL)
    log = pq.read_table(folder / "log.parquet")
    actions = np.unique(log["coupon"].to_numpy()).tolist()
    pq.write_table(policy_table(log, actions), folder / "rules.parquet")
    for name in ("users.parquet", "today.parquet"):
        pq.write_table(log.filter(pc.equal(log["day"], 0)), folder / name)
    pq.write_table(log.select(["user_id", "day", "coupon"]), folder / "chosen.parquet")
    outlay.prepare(campaign, folder / "data")
    outlay.train(folder / "data", folder / "second", seed=2)
    outlay.train(campaign, folder / "run", seed=1)
    outlay.train(campaign, folder / "classic", method="two-stage", response="deepfm", label_days=3)
    shutil.copytree(folder / "second", folder / "other-run")
    runs = folder / "runs"
    for name in ("campaign.toml", "log.parquet"):
        (runs / "demo-campaign").mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, runs / "demo-campaign")
    shutil.copytree(folder / "data", runs / "demo-data")
    shutil.copytree(folder / "second", runs / "demo")
    with contextlib.chdir(folder):
        plan = next(line for page, line in commands() if page == "ab-tests.md" and "experiment plan" in line)
        assert command(*shlex.split(plan)[1:]).code == 0
    return folder


def test_reasons_are_about_commands_of_the_pages() -> None:
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in LINES)] == []


@pytest.mark.slow
@pytest.mark.parametrize("line", RUN)
def test_a_command_of_a_page_ends_without_an_error(
    line: str, folder_of_the_pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(folder_of_the_pages, folder)
    monkeypatch.chdir(folder)
    words = shlex.split(re.sub(r"--users \d+", "--users 500", line))[1:]
    written = folder / (words[words.index("--out") + 1] if "--out" in words else "experiment.toml")
    if written.is_dir():
        shutil.rmtree(written)
    elif "--out" in words or "plan" in words:
        written.unlink(missing_ok=True)
    result = command(*words)
    assert result.code == 0, result.err


@pytest.mark.slow
@pytest.mark.parametrize("code", [code for _, reason, code in BLOCKS if not reason])
def test_a_python_block_of_a_page_runs(
    code: str, folder_of_the_pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On fewer users than the page says; what is printed is compared in `test_documents.py`."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(folder_of_the_pages / "chosen.parquet", tmp_path)
    exec(compile(code.replace("200_000", "2_000"), "page", "exec"), {})


def test_every_python_block_is_run_or_says_why_not() -> None:
    assert {page for page, reason, _ in BLOCKS if reason} == {
        "CONTRIBUTING.md",
        "campaign.md",
        "evaluation.md",
        "simulated-campaigns.md",
    }
