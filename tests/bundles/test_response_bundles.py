"""Bundles whose members price a response model: shared networks, and models that look at past days."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outlay.bundles.decide import Bundle
from outlay.bundles.manifest import seal, unseal
from outlay.bundles.policy import Member
from outlay.bundles.read import load_bundle
from outlay.bundles.response_reference import respond
from outlay.bundles.write import BundleSpec, MemberSpec, write_bundle
from outlay.core.errors import BundleError
from outlay.core.files import sha256
from outlay.core.response import Past, ResponseArrays
from outlay.jobs.score import score
from small_bundles import CAMPAIGN, SCHEMA, random_network
from small_responses import random_past, random_response, random_states

ROWS, BACK = 3000, 4
PRICES = ([1.0, 0.0], [1.0, -0.4])


def spec(network: Any, *others: Any) -> BundleSpec:
    """Two prices of one network, then members with networks of their own."""
    members = [MemberSpec(network, 0.3, [-w[1]], w, [0.2, 1.0]) for w in PRICES]
    members += [MemberSpec(other, 0.4 / len(others), [0.0], [1.0, -0.1], [0.2, 1.0]) for other in others]
    total = sum(member.weight for member in members)
    members = [replace(member, weight=member.weight / total) for member in members]
    return BundleSpec(CAMPAIGN, SCHEMA, [0.0, 1.5, 3.0], ("reward", "coupon_cost"), tuple(members))


def written(folder: Path, network: ResponseArrays, *others: Any) -> Bundle:
    write_bundle(folder, spec(network, *others))
    return load_bundle(folder)


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def states() -> tuple[Any, Any]:
    return random_states(ROWS, SCHEMA.sizes, 2)


def past() -> Past:
    return random_past(ROWS, BACK, SCHEMA.sizes, 2)


def first(days: Past, count: int) -> Past:
    return Past._make(column[:count] for column in days)


@pytest.fixture(scope="module")
def deepfm(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return written(tmp_path_factory.mktemp("deepfm") / "bundle", random_response(0))


@pytest.fixture(scope="module")
def din(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """With a member that does not look back."""
    return written(tmp_path_factory.mktemp("din") / "bundle", random_response(0, past_days=BACK), random_network(1))


def test_members_price_the_model(deepfm: Bundle) -> None:
    codes, numbers = states()
    wanted = respond(random_response(0), codes, numbers)
    for i, weights in enumerate(PRICES):
        value = wanted.q @ weights
        sure = np.diff(np.sort(value, axis=1)[:, -2:], axis=1)[:, 0] > 1e-4
        assert sure.mean() > 0.99
        assert np.array_equal(deepfm.member_actions(i, codes, numbers)[sure], value.argmax(1)[sure])
    assert (deepfm.member_actions(0, codes, numbers) != deepfm.member_actions(1, codes, numbers)).any()
    close(deepfm.features(0, codes, numbers), wanted.features)
    close(deepfm.outcome(0, codes, numbers), wanted.outcome)
    assert deepfm.imitation(0, codes, numbers) is None


def test_a_shared_network_is_written_loaded_and_run_once(deepfm: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sorted(path.name for path in deepfm.folder.glob("*.onnx")) == ["policy-0.onnx"]
    one, other = deepfm.members
    assert one.session is other.session
    assert one.salt != other.salt
    runs: list[Any] = []
    run = Member.run

    def counted(self: Member, *given: Any) -> Any:
        runs.append(self)
        return run(self, *given)

    monkeypatch.setattr(Member, "run", counted)
    codes, numbers = states()
    chosen = [actions for actions, _ in deepfm.choices(codes, numbers)]
    assert len(runs) == 1
    for i, actions in enumerate(chosen):
        assert np.array_equal(actions, deepfm.member_actions(i, codes, numbers))


def test_members_of_several_networks_keep_their_own(tmp_path: Path) -> None:
    """Where a network comes back after another one, each member still answers for itself."""
    mixed = spec(random_response(0), random_response(1))
    a, b, c = mixed.members
    write_bundle(tmp_path / "bundle", replace(mixed, members=(a, c, b)))
    bundle = load_bundle(tmp_path / "bundle")
    assert [m["file"] for m in bundle.manifest["members"]] == ["policy-0.onnx", "policy-1.onnx", "policy-0.onnx"]
    codes, numbers = states()
    for (_, value), member in zip(bundle.choices(codes, numbers), (a, c, b), strict=True):
        assert isinstance(member.network, ResponseArrays)
        wanted = respond(member.network, codes, numbers).q @ np.asarray(member.head_weights)
        close(value, wanted)


def test_a_table_is_decided_by_deepfm(deepfm: Bundle) -> None:
    table = pa.table({"user_id": ["a", "b"], "level": [1, 3], "city": ["Ulm", "Oslo"], "spend": [3.0, None]})
    encoded = SCHEMA.encode(table)
    value = respond(random_response(0), encoded.codes, encoded.numbers).q @ np.array(PRICES).T
    found = deepfm.decide(table, members=True)["action_index"].to_numpy().reshape(2, 2)
    assert np.array_equal(found, value.argmax(1))
    assert deepfm.decide(table).num_rows == 2


def test_din_decides_from_the_past(din: Bundle) -> None:
    codes, numbers, before = *states(), past()
    assert din.past_days == BACK == din.manifest["past_days"]
    wanted = respond(random_response(0, past_days=BACK), codes, numbers, before)
    for (_, value), weights in zip(din.choices(codes, numbers, past=before), PRICES, strict=False):
        close(value, wanted.q @ weights)
    close(din.outcome(0, codes, numbers, before), wanted.outcome)
    close(din.features(0, codes, numbers, before), wanted.features)
    none = before._replace(age=np.full_like(before.age, -1))
    assert (
        din.member_actions(0, codes, numbers, past=before) != din.member_actions(0, codes, numbers, past=none)
    ).any()


def test_what_stands_where_a_day_is_absent_does_not_matter(din: Bundle) -> None:
    codes, numbers, before = *states(), past()
    absent = before.age < 0
    other = Past(
        codes=np.where(absent[..., None], before.codes[::-1], before.codes),
        numbers=np.where(absent[..., None], np.float32(1e3), before.numbers),
        action=np.where(absent, 0, before.action),
        outcome=np.where(absent[..., None], np.float32(-1e3), before.outcome),
        age=before.age,
    )
    for name in ("q", "outcome"):
        one, same = (din.members[0].run([name], codes, numbers, days)[0] for days in (before, other))
        np.testing.assert_allclose(one, same, atol=1e-5)


def test_rows_and_their_past_in_chunks_are_the_same(din: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    codes, numbers, before = *states(), past()
    (whole,) = din.members[0].run(["q"], codes, numbers, before)
    monkeypatch.setattr("outlay.bundles.policy.CHUNK_ROWS", 7)
    (parts,) = din.members[0].run(["q"], codes[:100], numbers[:100], first(before, 100))
    np.testing.assert_allclose(whole[:100], parts, atol=1e-5)


def test_longer_and_wider_pasts_come_in_smaller_chunks(din: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    codes, numbers, before = *states(), past()
    sizes: list[int] = []

    class Watched:
        def run(self, _: Any, feed: dict[str, Any]) -> Any:
            sizes.append(len(feed["past_age"]))
            return [np.zeros((sizes[-1], 3, 2), np.float32)]

        get_inputs, get_outputs = din.members[0].session.get_inputs, din.members[0].session.get_outputs

    monkeypatch.setattr("outlay.bundles.policy.CELLS", 100 * (4 + BACK * (4 + 3 * 64)))
    replace(din.members[0], session=Watched()).run(["q"], codes, numbers, before)
    assert sizes == [100] * 30


def test_a_table_of_rows_has_no_past_and_the_error_says_what_to_do(din: Bundle, tmp_path: Path) -> None:
    table = pa.table({"user_id": ["a"], "level": [1], "city": ["Ulm"], "spend": [3.0]})
    for call in (din.decide, din.decide_batch):
        with pytest.raises(BundleError, match=r"needs each user's past 4 days.*--response deepfm.*outlay evaluate"):
            call(table)
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(BundleError, match=r"policy-0\.onnx.*past 4 days"):
        score(din, tmp_path / "rows.parquet", tmp_path / "out.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_golden_rows_hold_past_days_and_absent_ones(tmp_path: Path) -> None:
    din = written(tmp_path / "bundle", random_response(0, past_days=BACK))
    with np.load(din.folder / "golden.npz") as golden:
        content = dict(golden)
    assert 0.2 < (content["past_age"] < 0).mean() < 0.5
    content["past_outcome"] = content["past_outcome"] + np.float32(0.1)
    np.savez(din.folder / "golden.npz", **content)
    manifest = unseal(din.folder)
    seal(din.folder, {**manifest, "files": {**manifest["files"], "golden.npz": sha256(din.folder / "golden.npz")}})
    with pytest.raises(BundleError, match=r"policy-0\.onnx: this machine's runtime"):
        load_bundle(din.folder)


def test_a_bundle_from_before_there_were_past_days_still_loads(folder: Path) -> None:
    before = load_bundle(folder)
    assert before.past_days == 0
    manifest = {key: value for key, value in unseal(folder).items() if key != "past_days"}
    seal(folder, manifest)
    assert "past_days" not in json.loads((folder / "manifest.json").read_text())
    assert load_bundle(folder).past_days == 0
    assert [m.salt for m in load_bundle(folder).members] == [m.salt for m in before.members]


def test_different_lengths_of_the_past_are_refused() -> None:
    with pytest.raises(ValueError, match=r"look back \[3, 4\] days"):
        spec(random_response(0, past_days=3), random_response(1, past_days=4))


@pytest.mark.parametrize("back", [0, 3])
@pytest.mark.parametrize("fields", ["categorical", "numeric"])
def test_features_of_one_kind_will_do(tmp_path: Path, back: int, fields: str) -> None:
    schema = replace(SCHEMA, **{fields: ()})
    network = random_response(3, past_days=back, sizes=schema.sizes, numbers=2 * len(schema.numeric), one_day=True)
    write_bundle(tmp_path / "bundle", replace(spec(network), schema=schema))
    assert load_bundle(tmp_path / "bundle").past_days == back
