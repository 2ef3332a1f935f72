"""What a request may make the ledger keep: amounts that can be counted, small rows; and who may read the file."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from small_ledgers import CLOCK, EVERY_BACKEND, new_url, outcome, proposal
from small_servers import STATE, request, server

from outlay.bundles.decide import Bundle
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.money import LARGEST, LARGEST_SUM
from outlay.serve.ledger.records import LARGEST_VALUE
from outlay.serve.ledger.sqlite import SqliteLedger
from outlay.serve.user_days.log_row import outcomes_in_time
from telling import missing


@pytest.mark.parametrize("value", [1e308, -1e308, 1e19, "1e400"])
def test_a_value_whose_sums_would_not_be_numbers_is_refused(bundle: Bundle, tmp_path: Path, value: Any) -> None:
    with server(bundle, tmp_path / "ledger.db") as client:
        decision = client.post("/v1/decisions", json=request(1)).json()["decision_id"]
        body = f'{{"decision_id": "{decision}", "kind": "active", "event_id": "e", "value": {value}}}'
        headers = {"Content-Type": "application/json"}
        refused = client.post("/v1/outcomes", content=body, headers=headers)
        assert (refused.status_code, refused.json()["where"]) == (422, "$.value")
        body = body.replace(str(value), str(LARGEST_VALUE))
        assert client.post("/v1/outcomes", content=body, headers=headers).status_code == 200


def test_values_that_an_older_server_took_have_finite_sums(tmp_path: Path) -> None:
    """Exports and the past of users take them from here."""
    with closing(SqliteLedger(tmp_path / "ledger.db")) as ledger:
        ledger.set_caps("coupons", Caps())
        [answer] = ledger.record([proposal("r1")])
        ledger.outcomes([outcome(answer.decision_id, "active", f"e{i}", value=1e308) for i in range(3)])
        [row] = ledger.rows("coupons", CLOCK, CLOCK + 1)
        assert math.isfinite(sum(value for _, value in outcomes_in_time(row, CLOCK + 1)))


@pytest.mark.parametrize("backend", EVERY_BACKEND)
def test_redemptions_that_cannot_be_counted_any_more_are_refused_and_kept(backend: str, tmp_path: Path) -> None:
    """64 bits would run over, and no outcome of the campaign could be written any more."""
    with closing(open_ledger(new_url(backend, tmp_path))) as ledger:
        ledger.set_caps("coupons", Caps(total=1_000))
        count = LARGEST_SUM // LARGEST
        answers = ledger.record([proposal(f"r{i}", 1) for i in range(count + 2)])
        told = ledger.outcomes([outcome(answer.decision_id, amount=LARGEST) for answer in answers])
        assert [each.status for each in told] == ["overrun"] * count + ["refused"] * 2
        assert ledger.totals("coupons").total.settled == LARGEST_SUM
        refund = outcome(answers[0].decision_id, "refund", "e2")
        assert [each.status for each in ledger.outcomes([refund])] == ["refunded"]
        again = outcome(answers[-1].decision_id, event_id="e3", amount=1)
        assert [each.status for each in ledger.outcomes([again])] == ["settled"]
        assert ledger.check() == []


def test_features_that_nobody_knows_are_kept_up_to_a_limit(bundle: Bundle, tmp_path: Path) -> None:
    """For the next training; but 1.5 MB in a row, or ten thousand names, help nobody."""
    with server(bundle, tmp_path / "ledger.db", limits={"features_bytes": 2_000}) as client:

        def ask(number: int, **more: Any) -> Any:
            return client.post("/v1/decisions", json={"requests": [request(number, features=STATE | more)]})

        assert ask(1, weather="w" * 1_900).status_code == 200
        for features in ({"weather": "w" * 2_000}, {f"f{i}": i for i in range(300)}, {"level": "ü" * 1_000}):
            refused = ask(2, **features)
            assert (refused.status_code, refused.json()["where"]) == (422, "$.requests[0].features")
            assert "at most 2000 are recorded" in refused.json()["error"]
        [row] = client.service.ledger.rows("coupons", 0, 2**47)
        assert '"weather":"www' in row.features


def test_a_file_of_a_ledger_is_its_owners_and_a_warning_tells_where_it_is_not(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(SqliteLedger(path)) as ledger:
        ledger.set_caps("coupons", Caps())
        files = sorted(tmp_path.iterdir())
        assert [file.name for file in files] == ["ledger.db", "ledger.db-shm", "ledger.db-wal"]
        assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 3
        assert not ledger.warnings
    path.chmod(0o644)
    with closing(SqliteLedger(path)) as ledger:
        [words] = ledger.warnings
        assert not missing(words, "ledger.db", "mode 644")
    assert path.stat().st_mode & 0o777 == 0o644  # somebody may have meant it
