"""serve.toml is read strictly, and an empty one is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from outlay.core.errors import OutlayError
from outlay.serve.config import ServeConfig
from telling import missing

WHOLE = """
fallback = 1.5
minor = 1000
timezone = "Asia/Shanghai"
expiry_hours = 12.0
wait_days = 3
outcomes = ["order", "visit"]

[reserve]
"1.5" = 1.5

[caps]
total = 100000
day = 5000.0
policy = 90000

[user]
decisions_per_day = 1
amount = 20.0

[values]
at_least = 1.0
allowed = [1.0, 1.5]

[random]
share = 0.02
cap = 500.0

[episode]
days = 7

[plan]
start = 2026-11-02
days = 3
shares = [1, 2, 1]
correct_minutes = 30

[limits]
batch = 50
"""


def test_an_empty_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text("")
    config = ServeConfig.load(path)
    assert (config.fallback, config.random.share, config.expiry_hours, config.caps.total) == (None, 0.0, 24.0, None)
    assert config.model_copy(update={"path": None}) == ServeConfig()


def test_every_section_is_read(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(WHOLE)
    config = ServeConfig.load(path)
    assert (config.minor, config.caps.policy, config.user.decisions_per_day, config.limits.batch) == (
        1000,
        90000,
        1,
        50,
    )
    assert config.reserve == {"1.5": 1.5}
    assert config.plan is not None
    assert (config.plan.shares, config.plan.correct_minutes, config.plan.first) == ((1, 2, 1), 30, 20_759)
    assert config.outcomes == ("order", "visit")
    assert config.path == path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[randm]\nshare = 0.1", "randm: unknown key … 'random'"),
        ("[random]\nshre = 0.1", "random.shre: unknown key … 'share'"),
        ("[plan]\nstart = 2026-01-01\ndays = 2\nbegin = 1", "plan.begin: unknown key."),
        ("[user]\nzzz = 1", "user.zzz: unknown key … amount, amount_per_day, decisions, decisions_per_day"),
        ("path = 'x'", "path: unknown key."),
        ("[random]\nshare = 1.5", "random.share: is 1.5"),
        ("[random]\nsalt = 'a:b'", "random.salt: is 'a:b'"),
        ("[caps]\ntotal = -1", "caps.total: is -1"),
        ("[caps]\ntotal = inf", "caps.total: is inf"),
        ("[values]\nat_least = 2.0\nat_most = 1.0", "values: at_least is 2 … at_most 1"),
        ("[plan]\nstart = 2026-01-01\ndays = 2\nshares = [1]", "plan: shares has 1 numbers … 2"),
        ("[plan]\ndays = 2", "plan.start: is missing."),
        ("[plan]\nstart = 2026-01-01\ndays = 2\ncorrect_minutes = 0.5", "plan.correct_minutes:"),
        ("timezone = 'Mars/Olympus'", "timezone is 'Mars/Olympus'"),
        ("fallback = ", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(text)
    with pytest.raises(OutlayError) as found:
        ServeConfig.load(path)
    assert str(found.value).startswith(str(path))
    assert not missing(str(found.value), words)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(OutlayError, match=r"serve\.toml: does not exist"):
        ServeConfig.load(tmp_path / "serve.toml")
    with pytest.raises(OutlayError, match=r"folder; .*serve\.toml"):
        ServeConfig.load(tmp_path)


def test_settings_made_in_python_are_refused_in_our_own_words() -> None:
    with pytest.raises(ValidationError, match=r"timezone is 'Mars'") as found:
        ServeConfig(timezone="Mars")
    assert "Value error" not in str(found.value)


def test_the_cap_of_the_command_line_replaces_the_files() -> None:
    config = ServeConfig.parse({"caps": {"total": 5, "day": 2}}).with_cap(7.5)
    assert (config.caps.total, config.caps.day) == (7.5, 2)
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(OutlayError, match=r"--cap"):
            ServeConfig().with_cap(wrong)
