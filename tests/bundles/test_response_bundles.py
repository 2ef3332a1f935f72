"""Bundles whose members price a response model: shared networks, and models that read past days."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outlay.bundles.decide import Bundle, Member
from outlay.bundles.read import load_bundle
from outlay.bundles.reference import respond
from outlay.bundles.write import BundleSpec, MemberSpec, write_bundle
from outlay.core.arrays import ResponseArrays
from small_bundles import CAMPAIGN, SCHEMA, random_network
from small_responses import COLUMNS, random_past, random_response, random_states, with_lags

ROWS, BACK = 3000, 4
PRICES = ([1.0, 0.0], [1.0, -0.4])


def spec(network: Any, *others: Any) -> BundleSpec:
    """Two prices of one network, then members with networks of their own."""
    members = [MemberSpec(network, 0.3, [-w[1]], w, [0.2, 1.0]) for w in PRICES]
    members += [MemberSpec(other, 0.4 / len(others), [0.0], [1.0, -0.1], [0.2, 1.0]) for other in others]
    total = sum(member.weight for member in members)
    members = [replace(member, weight=member.weight / total) for member in members]
    return BundleSpec(CAMPAIGN, SCHEMA, [0.0, 1.5, 3.0], ("reward", "coupon_cost"), tuple(members))


def looking_back(made: BundleSpec, days: int) -> BundleSpec:
    campaign, schema = with_lags(CAMPAIGN, made.schema, days)
    return replace(made, campaign=campaign, schema=schema)


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def states(back: int = 0) -> tuple[Any, Any]:
    """Codes and numbers; with past days, how many there are is a number too."""
    codes, numbers = random_states(ROWS, SCHEMA.sizes, 4 if back else 2)
    return codes, np.hstack([numbers, random_past(ROWS, back)]) if back else numbers


@pytest.fixture(scope="module")
def deepfm(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("deepfm") / "bundle"
    write_bundle(folder, spec(random_response(0)))
    return load_bundle(folder)


@pytest.fixture(scope="module")
def din(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """With a member that does not look back."""
    folder = tmp_path_factory.mktemp("din") / "bundle"
    other = random_network(1, numbers=4 + 2 * COLUMNS * BACK)
    write_bundle(folder, looking_back(spec(random_response(0, past_days=BACK, numbers=4), other), BACK))
    return load_bundle(folder)


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
    close(deepfm.members[0].run(["outcome"], codes, numbers)[0], wanted.outcome)
    assert "imitation" not in deepfm.members[0].shapes


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
    assert [m.file for m in bundle.manifest.members] == ["policy-0.onnx", "policy-1.onnx", "policy-0.onnx"]
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
    codes, numbers = states(BACK)
    wanted = respond(random_response(0, past_days=BACK, numbers=4), codes, numbers)
    for (_, value), weights in zip(din.choices(codes, numbers), PRICES, strict=False):
        close(value, wanted.q @ weights)
    close(din.members[0].run(["outcome"], codes, numbers)[0], wanted.outcome)
    close(din.features(0, codes, numbers), wanted.features)
    other = np.hstack([numbers[:, :4], numbers[::-1, 4:]])
    assert (din.member_actions(0, codes, numbers) != din.member_actions(0, codes, other)).any()


def test_rows_in_chunks_are_the_same(din: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    codes, numbers = states(BACK)
    (whole,) = din.members[0].run(["q"], codes, numbers)
    monkeypatch.setattr("outlay.bundles.decide.CHUNK_ROWS", 7)
    (parts,) = din.members[0].run(["q"], codes[:100], numbers[:100])
    np.testing.assert_allclose(whole[:100], parts, atol=1e-5)


def test_longer_pasts_come_in_smaller_chunks(din: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    codes, numbers = states(BACK)
    sizes: list[int] = []

    class Watched:
        def run(self, _: Any, feed: dict[str, Any]) -> Any:
            sizes.append(len(feed["codes"]))
            return [np.zeros((sizes[-1], 3, 2), np.float32)]

        get_inputs, get_outputs = din.members[0].session.get_inputs, din.members[0].session.get_outputs

    monkeypatch.setattr("outlay.bundles.decide.CELLS", 100 * (2 + numbers.shape[1] + BACK * 3 * 64))
    replace(din.members[0], session=Watched()).run(["q"], codes, numbers)
    assert sizes == [100] * 30


@pytest.mark.parametrize("back", [0, 3])
@pytest.mark.parametrize("fields", ["categorical", "numeric"])
def test_features_of_one_kind_will_do(tmp_path: Path, back: int, fields: str) -> None:
    schema = replace(SCHEMA, **{fields: ()})
    own = 2 * len(schema.numeric) + 2 * bool(back)
    made = spec(random_response(3, past_days=back, sizes=schema.sizes, numbers=own, one_day=True))
    made = replace(made, schema=schema)
    write_bundle(tmp_path / "bundle", looking_back(made, back) if back else made)
    assert (load_bundle(tmp_path / "bundle").history is None) == (back == 0)
