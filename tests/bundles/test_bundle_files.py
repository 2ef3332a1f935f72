"""A bundle is whole and unchanged, or it is refused; its vocabulary is in memory once for all who serve it."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from outlay.bundles.certificate import Judgement, write_certificate
from outlay.bundles.decide import Bundle
from outlay.bundles.manifest import BudgetEntry, FeatureNames, digest, seal, unseal
from outlay.bundles.read import KEPT_VOCABULARIES, check_values, load_bundle, shared_schema
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.core.arrays import NetworkArrays
from outlay.core.errors import BundleError, FolderError
from outlay.core.estimate import Estimate
from outlay.core.files import sha256, write_manifest
from outlay.core.schema import Categorical, Numeric, Schema

FILES = ("manifest.json", "policy-0.onnx", "policy-1.onnx", "vocabulary.parquet", "golden.npz")
MakeSpec = Callable[..., BundleSpec]


def test_bundle_has_the_files_of_the_design_and_nothing_else(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert not [path for path in folder.parent.iterdir() if path != folder]


def test_manifest_says_what_is_served(folder: Path) -> None:
    manifest = unseal(folder)
    assert manifest.id == load_bundle(folder).id
    assert len(manifest.id) == 16
    assert (manifest.name, manifest.unit, manifest.none) == ("coupons", "yuan", 0.0)
    assert manifest.episode == "coupons"
    assert manifest.features == FeatureNames(("level", "city"), ("spend",))
    assert (manifest.user, manifest.eligible) == ("user_id", None)
    (budget,) = manifest.budgets
    assert budget == BudgetEntry("coupon_cost", 1.2, "decision", 1, money=True)
    assert manifest.campaign["budget"] == [
        {"name": "coupon_cost", "cost": "coupon * active", "at_most": 1.2, "per": "decision"}
    ]
    assert manifest.campaign["campaign"]["name"] == "coupons"
    assert "source" not in manifest.campaign["log"]
    assert manifest.heads == ("reward", "coupon_cost")
    assert [m.weight for m in manifest.members] == [0.6, 0.4]
    assert manifest.members[1].head_weights == (1.0, -0.5)
    assert manifest.files == {name: sha256(folder / name) for name in FILES[1:]}


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


def test_another_format_version_is_refused_in_words(folder: Path) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "version": 99}))
    with pytest.raises(BundleError, match=r"format .*\b99;.* 2\b"):
        load_bundle(folder)
    path.write_text(json.dumps({**manifest, "format": "outlay-run"}))
    with pytest.raises(BundleError, match="'outlay-run'; expected 'outlay-bundle'"):
        load_bundle(folder)


def test_a_manifest_that_says_less_is_refused_with_what_it_lacks(folder: Path) -> None:
    """Its hashes fit, as if another program had written it."""
    content = {key: value for key, value in unseal(folder).content().items() if key != "unit"}
    write_manifest(folder, "bundle", {"id": digest(content)[:16], **content, "sha256": digest(content)})
    with pytest.raises(BundleError, match=r"manifest\.json, unit: "):
        load_bundle(folder)


def test_a_runtime_that_computes_other_values_is_refused(folder: Path) -> None:
    """Golden values that nobody computes, with hashes that fit them."""
    with np.load(folder / "golden.npz") as golden:
        content = dict(golden)
    content["q_1"] = content["q_1"] + np.float32(1e-3)
    np.savez(folder / "golden.npz", **content)
    manifest = unseal(folder)
    seal(folder, replace(manifest, files={**manifest.files, "golden.npz": sha256(folder / "golden.npz")}))
    with pytest.raises(BundleError, match=r"policy-1\.onnx: .*0\.001"):
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


ESTIMATES = (Estimate(policy="mixture", estimator="fqe", target="reward", value=1.0),)


def test_a_certificate_lies_beside_the_bundle_and_changes_no_byte_of_it(folder: Path) -> None:
    before, files = load_bundle(folder), {name: (folder / name).read_bytes() for name in FILES}
    assert before.judgement is None
    for look in (1, 2):  # it takes the place of an older one
        write_certificate(folder, ESTIMATES, {"certified": True, "look": look})
    after = load_bundle(folder)
    assert after.judgement == Judgement(ESTIMATES, {"certified": True, "look": 2})
    assert {path.name for path in folder.iterdir()} == {*FILES, "certificate.json"}
    assert {name: (folder / name).read_bytes() for name in FILES} == files
    assert (after.id, after.manifest) == (before.id, before.manifest)


def test_a_certificate_goes_wherever_its_bundle_is_copied_and_judges_no_other(
    folder: Path, tmp_path: Path, make_spec: MakeSpec
) -> None:
    write_certificate(folder, ESTIMATES, {"certified": True})
    shutil.copytree(folder, tmp_path / "server")
    copy, own = load_bundle(tmp_path / "server"), load_bundle(folder)
    assert copy.judgement == own.judgement
    write_bundle(tmp_path / "other", make_spec(weights=(0.5, 0.5)))
    shutil.copy(folder / "certificate.json", tmp_path / "other")
    with pytest.raises(BundleError, match=rf"certificate\.json: .*another bundle.*{own.id}"):
        load_bundle(tmp_path / "other")
    write_bundle(tmp_path / "other", make_spec(weights=(0.5, 0.5)))  # a bundle that is written anew has none
    assert load_bundle(tmp_path / "other").judgement is None


def test_a_changed_byte_of_the_certificate_is_refused_with_the_file_named(folder: Path) -> None:
    write_certificate(folder, ESTIMATES, {"certified": False})
    path = folder / "certificate.json"
    content = path.read_bytes()
    for position in np.random.default_rng(0).integers(0, len(content), 40):
        changed = bytearray(content)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(BundleError, match=r"certificate\.json"):
            load_bundle(folder)


def test_the_same_content_has_the_same_id_and_other_content_another(tmp_path: Path, make_spec: MakeSpec) -> None:
    first = write_bundle(tmp_path / "a", make_spec())
    assert write_bundle(tmp_path / "b", make_spec()) == first
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


def schema(values: int = 1_000) -> Schema:
    texts = tuple(f"é{value}" for value in range(values))
    return Schema(
        (Categorical("many", texts, 7), Categorical("few", ("a", "1")), Categorical("none", ())),
        (Numeric("x", 0.1, 3.0), Numeric("y", 1e-300, 1.0)),
    )


def written(folder: Path, values: int = 1_000) -> bytes:
    schema(values).write(folder / "vocabulary.parquet")
    return (folder / "vocabulary.parquet").read_bytes()


def test_the_shared_schema_is_the_bundles(tmp_path: Path) -> None:
    content = written(tmp_path)
    first, second = (shared_schema(content, tmp_path / "shared") for _ in range(2))
    assert first == second == schema() == Schema.read(tmp_path / "vocabulary.parquet")
    many = second.categorical[0]
    assert [many.code_of(text) for text in ("é0", "é999")] == [3, 1002]
    assert many.code_of("other") == schema().categorical[0].other("other")
    table = pa.table(
        {"many": ["é5", None, "new"], "few": [1, 1, 2], "none": ["a"] * 3, "x": [1.0] * 3, "y": [None] * 3}
    )
    assert np.array_equal(second.encode(table).codes, schema().encode(table).codes)


def test_values_are_in_the_mapped_file_and_not_in_the_memory_of_the_process(tmp_path: Path) -> None:
    content = written(tmp_path, 300_000)
    shared_schema(content, tmp_path / "shared")
    before = pa.total_allocated_bytes()
    shared = shared_schema(content, tmp_path / "shared")
    assert pa.total_allocated_bytes() - before < 10_000
    assert sum(buffer.size for buffer in shared.categorical[0].values.buffers() if buffer) > 3_000_000
    before = pa.total_allocated_bytes()
    own = Schema.read(pa.BufferReader(content))
    assert pa.total_allocated_bytes() - before > 3_000_000
    assert own == shared


def test_a_folder_that_cannot_be_written_leaves_each_process_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = written(tmp_path)
    (tmp_path / "shared").write_text("a file")
    with caplog.at_level(logging.WARNING):
        assert shared_schema(content, tmp_path / "shared") == schema()
    assert "not shared with other workers" in caplog.text


def test_vocabularies_of_bundles_long_out_of_use_go_away(tmp_path: Path) -> None:
    shared = [
        shared_schema(written(tmp_path, values), tmp_path / "shared") for values in range(1, KEPT_VOCABULARIES + 4)
    ]
    assert len(list((tmp_path / "shared").iterdir())) == KEPT_VOCABULARIES
    assert shared[0].categorical[0].code_of("é0") == 3  # what a process has mapped stays
