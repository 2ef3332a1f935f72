"""Propensities of a server with a test, a random slice and a bundle that changes: paths are as likely as they say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
from small_servers import ADMIN, server
from small_trials import Days, trial

from outlay.bundles.decide import Bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.serve.export.export import export_log

USERS, DAYS = 3_000, (-1, 0, 1, 2)
RAMP = [{"day": 0, "coverage": 0.3}, {"day": 2, "coverage": 1.0}]
ARMS = [
    {"name": "old", "kind": "constant", "action": 1.5, "share": 0.1, "budget": 1e6},
    {"name": "new", "kind": "bundle", "share": 0.5, "budget": 1e6},
    {"name": "even", "kind": "random", "share": 0.2, "budget": 1e6},
]
STATES = [{"level": i % 3, "city": ("Ulm", "Lyon")[i % 2], "spend": i * 5.0} for i in range(len(DAYS))]


def test_products_are_paths_whoever_decided_on_each_day(
    bundle: Bundle, make_spec: Callable[..., BundleSpec], tmp_path: Path
) -> None:
    """Users come into the test on two days, one in three is in the slice before; the others get another bundle."""
    write_bundle(tmp_path / "three", make_spec(weights=(0.2, 0.3, 0.5)))
    write_bundle(tmp_path / "changed", make_spec(weights=(0.9, 0.1)))
    arms = [ARMS[0], ARMS[1] | {"bundle": str(tmp_path / "three")}, ARMS[2]]
    experiment, clock = trial(tmp_path, bundle.folder, RAMP, arms), Days(DAYS[0])
    path, slice_ = tmp_path / "ledger.db", {"share": 0.3}
    with server(bundle, path, clock=clock, experiment=experiment, random=slice_, outcomes=["active"]) as client:
        for day, state in zip(DAYS, STATES, strict=True):
            clock.at = day + 0.5
            if day == 1:
                changed = {"path": str(tmp_path / "changed")}
                assert client.post("/v1/admin/bundle", json=changed, headers=ADMIN).status_code == 200
            for first in range(0, USERS, 1_000):
                asked = [
                    {"request_id": f"{day}-{user}", "user_id": f"u{user}", "features": state}
                    for user in range(first, first + 1_000)
                ]
                assert client.post("/v1/decisions", json={"requests": asked}).status_code == 200
    export_log(f"sqlite:///{path}", tmp_path / "next", all_days=True)
    seen = paths(tmp_path / "next")
    assert set(seen) == {
        ("out", "out", "out", "out"),
        *(("out", arm, arm, arm) for arm in ("old", "new", "even")),
        *(("out", "out", "out", arm) for arm in ("old", "new", "even")),
    }
    for groups in seen.values():
        count = sum(map(len, groups.values()))
        for products in groups.values():
            p = products[0]
            np.testing.assert_allclose(products, p, rtol=1e-9)
            assert count * p < 20 or abs(len(products) - count * p) <= 4 * (count * p * (1 - p)) ** 0.5
    for arm in ("old", "new"):  # few paths are possible, and all of them are seen
        assert abs(sum(products[0] for products in seen["out", arm, arm, arm].values()) - 1) < 0.02


def paths(out: Path) -> dict[tuple[str, ...], dict[tuple[float, ...], list[float]]]:
    """Where users were on each day → what they got → the products of their propensities."""
    files = sorted(map(str, (out / "log").glob("*/*.parquet")))
    days: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in ds.dataset(files).to_table().sort_by("ts").to_pylist():
        days[row["user_id"]].append(row)
    found: dict[tuple[str, ...], dict[tuple[float, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for rows in days.values():
        where = tuple("out" if row["arm"] in ("policy", "random") else row["arm"] for row in rows)
        given = tuple(row["coupon"] for row in rows)
        found[where][given].append(float(np.prod([row["propensity"] for row in rows])))
    return found
