import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outlay.cli.main import app
from outlay.core.campaign import Campaign


@pytest.mark.parametrize(
    ("campaign", "options", "days", "features"),
    [("habit", (), 7, 2), ("thirty-day", (), 30, 2), ("wide", ("--fields", "24", "--values", "400"), 7, 24)],
)
def test_json_says_what_was_written(
    campaign: str, options: tuple[str, ...], days: int, features: int, tmp_path: Path
) -> None:
    out = tmp_path / "c"
    found = CliRunner().invoke(app, ["simulate", campaign, "--out", str(out), "--users", "20", "--json", *options])
    assert found.exit_code == 0
    told = json.loads(found.stdout)
    assert (told["campaign"], told["days"], told["rows"], told["features"]) == (campaign, days, 20 * days, features)
    assert Path(told["path"]) == out / "campaign.toml"
    assert Campaign.load(told["path"]).meta.name == campaign
    assert told.items() >= json.loads((out / "manifest.json").read_text()).items()
