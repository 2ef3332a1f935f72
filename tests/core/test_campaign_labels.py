"""What things are called in the report: labels of the campaign file, and names made readable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError
from outlay.core.wording import readable
from telling import missing

FILE: dict[str, Any] = {
    "campaign": {"name": "test"},
    "log": {"source": "x.csv", "action": "cpn_value", "reward": "activeDays", "features": {"numeric": ["age"]}},
    "budget": [{"name": "coupon_cost", "cost": "c", "at_most": 1.0}],
}


def with_labels(labels: Any) -> Campaign:
    return Campaign.parse({**FILE, "labels": labels}, Path("campaign.toml"))


def test_a_label_is_a_text_or_a_table_with_a_unit() -> None:
    found = with_labels(
        {
            "reward": "active days",
            "action": {"label": "coupons", "unit": "yuan"},
            "budgets": {"coupon_cost": "coupon money"},
            "segments": {"new": "new users"},
            "actions": {"0": "no coupon"},
        }
    )
    assert (found.called("reward").label, found.called("reward").unit) == ("active days", "")
    assert (found.called("action").label, found.called("action").unit) == ("coupons", "yuan")
    assert found.called("budgets", "coupon_cost").label == "coupon money"
    assert found.called("segments", "new").label == "new users"
    assert found.called("actions", "0").label == "no coupon"
    assert with_labels(found.labels.model_dump()).labels == found.labels


def test_what_has_no_label_is_called_by_its_name_made_readable() -> None:
    found = Campaign.parse(FILE, Path("campaign.toml"))
    assert [found.called("reward").label, found.called("action").label] == ["active days", "cpn value"]
    assert found.called("segments", "not_yet").label == "not yet"
    for name, words in (("active_days", "active days"), ("1.5", "1.5"), ("case when x", "case when x"), ("_", "_")):
        assert readable(name) == words


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ({"rewrad": "x"}, ("labels.rewrad", "reward")),
        ({"reward": 5}, ("labels.reward", "5", "a text")),
        ({"reward": ""}, ("labels.reward", "text")),
        ({"budgets": {"cupon_cost": "x"}}, ("cupon_cost", "coupon_cost")),
        ({"action": {"label": "x", "units": "y"}}, ("labels.action.units", "unit")),
    ],
)
def test_an_impossible_label_is_an_error_that_says_where(labels: Any, told: tuple[str, ...]) -> None:
    with pytest.raises(CampaignError) as error:
        with_labels(labels)
    assert not missing(str(error.value).replace("'", " "), *told)


def test_a_bundle_keeps_the_labels_that_its_campaign_has() -> None:
    from outlay.bundles.write import _campaign

    assert _campaign(with_labels({"reward": "active days"}))["labels"] == {
        "reward": {"label": "active days", "unit": ""}
    }
    assert "labels" not in _campaign(with_labels({}))
