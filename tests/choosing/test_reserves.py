"""What has to be set aside for each action, where the campaign file does not say it."""

from __future__ import annotations

from pathlib import Path

import outlay
from campaign_files import campaign_file, panel
from outlay.choosing.reserve import reserves
from outlay.core.campaign import Campaign
from outlay.serve.ledger.money import Money


def test_the_largest_cost_seen_is_the_amount_that_the_log_writes(tmp_path: Path) -> None:
    """DATA keeps outcomes in float32, in which a tenth is 0.100000001: a server would set 11 fen aside for it."""
    columns = panel()
    columns["coupon"] = [amount / 10 for amount in columns["coupon"]]
    path = campaign_file(tmp_path, columns)
    found = reserves(outlay.prepare(path, tmp_path / "data"), Campaign.load(path))
    assert found.tolist() == [0.1, 0.2, 0.3]
    assert [Money("yuan").reserve(amount) for amount in found.tolist()] == [10, 20, 30]
