"""The product's way, command by command, as a person would go it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outlay as package
from command_line import outlay
from telling import missing


def told(*arguments: object) -> str:
    found = outlay(*arguments)
    assert found.code == 0, found.err
    assert found.err == ""
    return found.out


def test_from_a_log_to_decisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate, check, prepare, train, evaluate, report, score: each says what is next, by relative paths."""
    monkeypatch.chdir(tmp_path)
    assert "Next: outlay check camp/campaign.toml" in told("simulate", "habit", "--out", "camp", "--users", 2000)
    campaign = Path("camp/campaign.toml")
    campaign.write_text(
        campaign.read_text() + "[train]\nlayers = [16, 8]\nbatch = 256\nmin_steps = 600\nepochs = 0.1\n"
    )

    checked = told("check", campaign)
    assert "14,000" in checked  # rows
    assert "inactive" in checked
    assert "Nothing blocks." in checked

    assert not missing(told("prepare", campaign, "--out", "data"), "Next: outlay train data", "--out run")
    trained = told("train", "data", "--out", "run", "--method", "lp", "--verbose")
    assert "lp of bcq" in trained
    assert "member 0" in trained
    assert "Next: outlay evaluate run" in trained

    judged = told("evaluate", "run", "--confidence", 0.9)
    assert not missing(judged, "90% intervals", "never used for choosing", "at most 2.2 yuan")
    for policy in ("old policy", "lp, as served"):
        assert policy in judged
    verdict = json.loads(Path("run/estimates.json").read_text())["verdict"]["words"]
    assert verdict in judged.splitlines()
    assert len(judged.splitlines()) <= 24
    assert told("evaluate", "run", "-v").strip().splitlines()[-2] == verdict  # then its condition

    assert "run/report.html" in told("report", "run")
    page = Path("run/report.html").read_text()
    assert verdict.split(":")[0] in page

    scored = told("score", "run/bundle", "camp/log.parquet", "--out", "decisions.parquet")
    assert "14,000 rows" in scored
    decisions = pq.read_table("decisions.parquet")
    assert decisions.column_names == ["row", "user", "action", "action_index", "member", "probability"]
    per_user: dict[str, set[int]] = {}
    for user, member in zip(decisions["user"].to_pylist(), decisions["member"].to_pylist(), strict=True):
        per_user.setdefault(user, set()).add(member)
    assert all(len(members) == 1 for members in per_user.values())  # one user keeps one member

    members = told("score", "run/bundle", "camp/states.parquet", "--out", "members.parquet", "--members")
    assert "10 rows" in members
    assert pq.read_table("members.parquet").num_rows % 10 == 0
    assert sorted(path.name for path in Path().iterdir()) == [
        "camp",
        "data",
        "decisions.parquet",
        "members.parquet",
        "run",
    ]


def test_the_guesses_of_init_can_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told("simulate", "habit", "--out", "camp", "--users", 500)
    said = told("init", "camp/log.parquet", "--out", "guess.toml", "--yes")
    assert not missing(said, "What the columns do", "0 errors", "Next: outlay check guess.toml")
    assert told("init", "camp/log.parquet", "--out", "quiet.toml", "--quiet") == ""
    assert "#" in Path("guess.toml").read_text()
    assert "500" in told("check", "guess.toml")


def test_a_draft_with_errors_is_not_to_be_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told("simulate", "habit", "--out", "camp", "--users", 500)
    log = pq.read_table("camp/log.parquet")
    pq.write_table(pa.concat_tables([log, log[:5]]), "log.parquet")  # five rows twice
    said = outlay("init", "log.parquet", "--out", "guess.toml", "--yes").out
    assert not missing(said, "1 error", "Next: fix these errors, then outlay check guess.toml")
    assert "outlay train" not in said


LIGHT = """
import sys
import outlay
heavy = {"jax", "pandas", "duckdb", "equinox", "optax", "onnx", "altair", "torch", "scipy"}
print(sorted(heavy & set(sys.modules)))
"""


def test_import_outlay_is_light() -> None:
    found = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


SERVING = """
import sys
heavy = {"jax", "equinox", "optax", "onnx", "pandas", "ray"}

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in heavy:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())  # as if they were not installed: where pandas is, pyarrow loads it
import outlay
outlay.load_bundle(sys.argv[1]).decide({"yesterday": [0, 1], "level": [2, 3]})
outlay.score(sys.argv[1], sys.argv[2], sys.argv[3])
print(sorted(heavy & set(sys.modules)))
"""


def test_deciding_needs_no_training_framework(finished: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("yesterday,level\n0,2\n1,3\n")
    command: list[str | Path] = [sys.executable, "-c", SERVING, finished / "bundle", rows, tmp_path / "d.csv"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_public_name_is_there_and_documented() -> None:
    for name in package.__all__:
        value = getattr(package, name)
        if name == "__version__":
            assert value == package.__version__
        else:
            assert value.__doc__, name
            assert len(value.__doc__) > 20
    assert package.__doc__
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        _ = package.tarin
