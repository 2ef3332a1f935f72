"""A bundle is whole and unchanged, or it is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from outlay.bundles.decide import Bundle
from outlay.bundles.manifest import seal, unseal
from outlay.bundles.read import check_values, load_bundle
from outlay.bundles.write import BundleSpec, update_certificate, write_bundle
from outlay.core.errors import BundleError, FolderError
from outlay.core.files import sha256
from outlay.core.network import NetworkArrays

FILES = ("manifest.json", "policy-0.onnx", "policy-1.onnx", "vocabulary.parquet", "golden.npz")
MakeSpec = Callable[..., BundleSpec]


def test_bundle_has_the_files_of_the_design_and_nothing_else(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert not [path for path in folder.parent.iterdir() if path != folder]


def test_manifest_says_what_is_served(folder: Path) -> None:
    manifest = unseal(folder)
    assert manifest["id"] == load_bundle(folder).id
    assert len(manifest["id"]) == 16
    assert (manifest["name"], manifest["unit"], manifest["none"]) == ("coupons", "yuan", 0.0)
    assert manifest["episode"] == "coupons"
    assert manifest["features"] == {"categorical": ["level", "city"], "numeric": ["spend"]}
    assert (manifest["user"], manifest["eligible"]) == ("user_id", None)
    (budget,) = manifest["budgets"]
    assert budget == {"name": "coupon_cost", "limit": 1.2, "per": "decision", "sign": 1, "money": True}
    assert manifest["campaign"]["budget"] == [
        {"name": "coupon_cost", "cost": "coupon * active", "at_most": 1.2, "per": "decision"}
    ]
    assert manifest["campaign"]["campaign"]["name"] == "coupons"
    assert "source" not in manifest["campaign"]["log"]
    assert manifest["heads"] == ["reward", "coupon_cost"]
    assert [m["weight"] for m in manifest["members"]] == [0.6, 0.4]
    assert manifest["members"][1]["head_weights"] == [1.0, -0.5]
    assert manifest["files"] == {name: sha256(folder / name) for name in FILES[1:]}


@pytest.mark.parametrize("name", FILES)
def test_one_changed_byte_anywhere_is_refused_with_the_file_named(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    for position in np.random.default_rng(0).integers(0, len(content), 40):
        changed = bytearray(content)
        changed[position] ^= 1
        (folder / name).write_bytes(changed)
        with pytest.raises(BundleError, match=name):
            load_bundle(folder)
    (folder / name).write_bytes(content)
    load_bundle(folder)


def test_a_changed_space_in_the_manifest_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace("\n ", "\n\t", 1))
    with pytest.raises(BundleError, match="hash differs"):
        load_bundle(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(BundleError, match=r"manifest\.json|cannot be read"):
        load_bundle(folder)


def test_the_graph_of_the_frontier_is_verified_before_it_is_needed(frontier_bundle: Bundle, tmp_path: Path) -> None:
    place = tmp_path / "bundle"
    shutil.copytree(frontier_bundle.folder, place)
    graph = place / "frontier.onnx"
    graph.write_bytes(graph.read_bytes()[:-1] + b"x")
    with pytest.raises(BundleError, match=r"frontier\.onnx: was changed"):
        load_bundle(place)
    graph.unlink()
    with pytest.raises(BundleError, match=r"frontier\.onnx: cannot be read"):
        load_bundle(place)


def test_a_half_written_manifest_and_a_missing_folder_are_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BundleError, match=r"manifest\.json: is not valid JSON.*Export"):
        load_bundle(folder)
    shutil.rmtree(folder)
    with pytest.raises(BundleError, match="does not exist"):
        load_bundle(folder)


def test_networks_that_encoded_the_past_are_refused_and_those_that_could_have_are_not(folder: Path) -> None:
    content, campaign = unseal(folder), load_bundle(folder).campaign
    for encoder in ("none", "convolution"):  # earlier versions wrote the first into every bundle
        train = content["campaign"]["train"] | {"encoder": encoder, "encoder_width": 16}
        seal(folder, content | {"campaign": content["campaign"] | {"train": train}})
        if encoder == "none":
            assert load_bundle(folder).campaign == campaign
    with pytest.raises(BundleError, match=r"through an encoder .* Train it again"):
        load_bundle(folder)


def test_another_format_version_is_refused_in_words(folder: Path) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "version": 99}))
    with pytest.raises(BundleError, match="format version is 99; this outlay reads version 1"):
        load_bundle(folder)
    path.write_text(json.dumps({**manifest, "format": "outlay-run"}))
    with pytest.raises(BundleError, match="'outlay-run'; expected 'outlay-bundle'"):
        load_bundle(folder)


def test_a_runtime_that_computes_other_values_is_refused(folder: Path) -> None:
    """Golden values that nobody computes, with hashes that fit them."""
    with np.load(folder / "golden.npz") as golden:
        content = dict(golden)
    content["q_1"] = content["q_1"] + np.float32(1e-3)
    np.savez(folder / "golden.npz", **content)
    manifest = unseal(folder)
    seal(folder, {**manifest, "files": {**manifest["files"], "golden.npz": sha256(folder / "golden.npz")}})
    with pytest.raises(BundleError, match=r"policy-1\.onnx: this machine's runtime .* differ by 0\.001"):
        load_bundle(folder)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_each_head_is_checked_in_its_own_size(tmp_path: Path, make_spec: MakeSpec, unit: float) -> None:
    """Costs in millionths or in millions: what is written is read, and a thousandth of either head's size is seen."""
    spec = make_spec()
    network = spec.members[0].network
    assert isinstance(network, NetworkArrays)
    units = np.tile([1.0, unit], network.head[1].shape[1] // 2).astype(np.float32)
    scaled = replace(network, head=(network.head[0] * units, network.head[1] * units))
    members = (replace(spec.members[0], network=scaled, weight=1.0),)
    write_bundle(tmp_path / "bundle", replace(spec, members=members))
    bundle = load_bundle(tmp_path / "bundle")
    with np.load(tmp_path / "bundle" / "golden.npz") as file:
        golden = dict(file)
    for head, size in enumerate(golden["q_0_size"]):
        wrong = golden["q_0"].copy()
        wrong[0, 0, head] += 1e-3 * size
        with pytest.raises(BundleError, match="this machine's runtime"):
            check_values(wrong, golden, "q_0", bundle.folder)


def test_certificate_is_added_without_a_new_id(folder: Path) -> None:
    before = unseal(folder)
    update_certificate(folder, {"mixture": 1.0}, {"certified": True})
    after = load_bundle(folder).manifest
    assert (after["estimates"], after["certificate"]) == ({"mixture": 1.0}, {"certified": True})
    assert after["id"] == before["id"]
    changed = {key for key in after if after[key] != before[key]}
    assert changed == {"estimates", "certificate", "sha256"}


def test_the_same_content_has_the_same_id_and_other_content_another(tmp_path: Path, make_spec: MakeSpec) -> None:
    first = write_bundle(tmp_path / "a", make_spec())
    assert write_bundle(tmp_path / "b", make_spec()) == first
    assert write_bundle(tmp_path / "b", replace(make_spec(), estimates={"x": 1})) == first
    assert write_bundle(tmp_path / "b", make_spec(weights=(0.5, 0.5))) != first
    assert write_bundle(tmp_path / "b", replace(make_spec(), actions=[0.0, 1.5, 4.0])) != first


def test_a_policy_keeps_its_salt_in_a_new_bundle(tmp_path: Path, make_spec: MakeSpec) -> None:
    write_bundle(tmp_path / "two", make_spec())
    write_bundle(tmp_path / "three", make_spec(weights=(0.2, 0.3, 0.5)))
    two, three = (load_bundle(tmp_path / name) for name in ("two", "three"))
    assert [m.salt for m in two.members] == [m.salt for m in three.members][:2]
    assert len({m.salt for m in three.members}) == 3


def test_head_weights_are_part_of_the_salt(tmp_path: Path, make_spec: MakeSpec) -> None:
    one = make_spec(weights=(1.0,))
    member = one.members[0]
    both = replace(one, members=(replace(member, weight=0.5), replace(member, weight=0.5, head_weights=[1.0, -9.0])))
    write_bundle(tmp_path / "both", both)
    assert len({m.salt for m in load_bundle(tmp_path / "both").members}) == 2


def test_the_same_policy_twice_is_refused_and_nothing_is_left(tmp_path: Path, make_spec: MakeSpec) -> None:
    one = make_spec(weights=(1.0,))
    twice = replace(one, members=(replace(one.members[0], weight=0.5),) * 2)
    with pytest.raises(ValueError, match="the same policy"):
        write_bundle(tmp_path / "bundle", twice)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_others_is_not_replaced(tmp_path: Path, make_spec: MakeSpec) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FolderError, match="outlay did not write it"):
        write_bundle(tmp_path, make_spec())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": [1.0, 0.0, 2.0]}, "ascending"),
        ({"actions": [0.0, 1.0]}, "3 actions, the bundle 2"),
        ({"heads": ("reward",)}, "names 1 heads"),
        ({"members": ()}, "sum to 1"),
    ],
)
def test_a_spec_that_does_not_fit_together_is_refused(
    make_spec: MakeSpec, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        replace(make_spec(), **changes)  # type: ignore[arg-type]
