"""Tables in, decisions out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from outlay.bundles.decide import Bundle, unknown_values, unseen_rows
from outlay.bundles.rows import eligible_actions
from outlay.core.actions import ActionNames
from outlay.core.errors import LogError

COLUMNS = ["row", "user", "action", "action_index", "member", "probability"]


def users(count: int, seed: int = 0, **more: Any) -> Any:
    rng = np.random.default_rng(seed)
    columns = {
        "user_id": [f"user-{i}" for i in range(count)],
        "level": rng.integers(1, 4, count),
        "city": rng.choice(["Lyon", "Ulm"], count).tolist(),
        "spend": rng.normal(10, 4, count),
    }
    return pa.table({**columns, **more})


def test_a_decision_is_the_drawn_members_best_action(bundle: Bundle) -> None:
    table = users(2_000)
    found, every = bundle.decide(table), bundle.decide(table, members=True)
    assert found.column_names == COLUMNS
    assert every.column_names == ["row", "member", "weight", "action", "action_index", "q"]
    assert found["row"].to_pylist() == list(range(2_000))
    assert found["user"].equals(table["user_id"])
    assert every["row"].to_pylist() == np.repeat(np.arange(2_000), 2).tolist()
    assert every["weight"].to_pylist() == [0.6, 0.4] * 2_000
    member, action = found["member"].to_numpy(), every["action_index"].to_numpy().reshape(-1, 2)
    assert np.array_equal(found["action_index"].to_numpy(), action[np.arange(2_000), member])
    assert np.array_equal(found["action"].to_numpy(), np.array([0.0, 1.5, 3.0])[found["action_index"].to_numpy()])
    assert np.array_equal(np.array(every["q"].to_pylist()).argmax(1), action.ravel())
    assert every.schema.field("q").type == pa.list_(pa.float64())
    agree = action[:, 0] == action[:, 1]
    assert 0 < agree.sum() < 2_000
    wanted = np.where(agree, 1.0, np.where(member == 0, 0.6, 0.4))
    np.testing.assert_allclose(found["probability"].to_numpy(), wanted)


def test_shares_follow_the_weights(bundle: Bundle) -> None:
    """Four standard errors of a share over 50,000 users."""
    share = bundle.decide(users(50_000))["member"].to_numpy().mean()
    assert abs(share - 0.4) < 4 * (0.24 / 50_000) ** 0.5


def test_a_user_keeps_the_member_in_any_table_and_changes_with_the_episode(bundle: Bundle) -> None:
    first, second = users(1_000), users(1_000, seed=9).slice(500).take(np.arange(500)[::-1])
    one = dict(zip(first["user_id"].to_pylist(), bundle.decide(first)["member"].to_pylist(), strict=True))
    two = dict(zip(second["user_id"].to_pylist(), bundle.decide(second)["member"].to_pylist(), strict=True))
    assert all(one[user] == member for user, member in two.items())
    again = bundle.decide(first, episode="coupons")["member"]
    assert again.to_pylist() == list(one.values())
    other = bundle.decide(first, episode="week 2")["member"].to_numpy()
    moved = (other != np.array(list(one.values()))).mean()
    assert abs(moved - 2 * 0.6 * 0.4) < 0.07  # independent draws


def test_user_ids_count_by_canonical_text(bundle: Bundle) -> None:
    table = users(300).drop(["user_id"])
    drawn = [
        bundle.decide(table.append_column("user_id", ids))["member"].to_pylist()
        for ids in (pa.array(range(300)), pa.array(range(300), pa.float64()), pa.array([str(i) for i in range(300)]))
    ]
    assert drawn[0] == drawn[1] == drawn[2]


def test_a_column_named_user_will_do_and_without_one_rows_are_drawn_by_position(bundle: Bundle) -> None:
    table = users(500)
    renamed = bundle.decide(table.rename_columns(["user", *table.column_names[1:]]))
    assert renamed.equals(bundle.decide(table))
    nameless = bundle.decide(table.drop(["user_id"]))
    assert nameless.column_names == [name for name in COLUMNS if name != "user"]
    numbered = bundle.decide(table.drop(["user_id"]).append_column("user", pa.array(range(500))))
    assert nameless["member"].equals(numbered["member"])


def test_the_draw_uses_the_row_of_the_whole_table_not_of_the_batch(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = users(500).drop(["user_id"])
    whole = bundle.decide(table)
    monkeypatch.setattr("outlay.bundles.rows.BATCH_ROWS", 64)
    assert bundle.decide(table).equals(whole)


def test_duckdb_relations_batches_and_dicts_are_tables_too(bundle: Bundle) -> None:
    table = users(50)
    wanted = bundle.decide(table)
    relation = duckdb.connect().from_arrow(table)
    assert bundle.decide(relation).equals(wanted)
    assert bundle.decide(table.to_batches()[0]).equals(wanted)
    assert bundle.decide(table.to_pydict()).equals(wanted)
    assert bundle.decide(table.to_reader(7)).equals(wanted)
    with pytest.raises(LogError, match="int is not a table"):
        bundle.decide(3)


def test_no_rows_give_no_decisions_with_the_same_columns(bundle: Bundle) -> None:
    empty = bundle.decide(users(5).slice(0, 0))
    assert empty.schema.equals(bundle.decide(users(5)).schema)
    assert empty.num_rows == 0
    assert bundle.decide(users(5).slice(0, 0), members=True).num_rows == 0


def test_unknown_values_are_served_and_counted(bundle: Bundle) -> None:
    table = users(4).set_column(2, "city", pa.array(["Lyon", "Oslo", None, "Rome"]))
    found = bundle.decide(table)
    assert found.num_rows == 4
    assert unknown_values(found) == 2
    assert unknown_values(bundle.decide(users(4))) == 0


def test_a_row_without_user_and_a_missing_feature_are_named(bundle: Bundle) -> None:
    table = users(4).set_column(0, "user_id", pa.array(["a", "b", None, "d"]))
    with pytest.raises(LogError, match="row 3, column 'user_id': "):
        bundle.decide(table)
    with pytest.raises(LogError, match=r"column 'spend': .*missing"):
        bundle.decide(users(4).drop(["spend"]))


def test_only_eligible_actions_are_given(eligible_bundle: Bundle) -> None:
    rng = np.random.default_rng(0)
    lists = [
        None if rng.random() < 0.2 else [float(a) for a in rng.permutation([0, 1.5, 3])[: rng.integers(1, 4)]]
        for _ in range(1_000)
    ]
    table = users(1_000, allowed=lists)
    given = eligible_bundle.decide(table)["action"].to_pylist()
    assert all(allowed is None or action in allowed for action, allowed in zip(given, lists, strict=True))
    free = eligible_bundle.decide(users(1_000, allowed=[None] * 1_000))["action"].to_pylist()
    bound = [a is not None and f not in a for a, f in zip(lists, free, strict=True)]
    assert any(bound)
    assert [g for g, a in zip(given, lists, strict=True) if a is None] == [
        f for f, a in zip(free, lists, strict=True) if a is None
    ]


def test_threshold_of_the_manifest_is_kept(eligible_bundle: Bundle) -> None:
    """Every action given has at least 0.9 of the largest π_B of its own member."""
    table = users(1_000, allowed=[None] * 1_000)
    encoded = eligible_bundle.schema.encode(table)
    for i in range(2):
        (log_prob,) = eligible_bundle.members[i].run(["imitation"], encoded.codes, encoded.numbers)
        action = eligible_bundle.member_actions(i, encoded.codes, encoded.numbers)
        prob = np.exp(log_prob[np.arange(1_000), action] - log_prob.max(1))
        assert prob.min() >= 0.9 - 1e-6
        assert eligible_bundle.features(i, encoded.codes, encoded.numbers).shape == (1_000, 16)


def test_eligible_is_read_right_in_a_slice_and_in_any_number_type() -> None:
    actions = np.array([0.0, 1.1, 3.0])
    column = pa.array([[9.0], [1.1], None, [3.0, 0.0], [1.1, 3.0]], pa.list_(pa.float64()))
    wanted = [[False, True, False], [True, True, True], [True, False, True], [False, True, True]]
    for kind in (pa.float64(), pa.float32(), pa.string()):
        table = pa.table({"allowed": column.cast(pa.list_(kind))}).slice(1)
        assert eligible_actions(table, "allowed", actions, ActionNames()).tolist() == wanted
        assert eligible_actions(table.to_batches()[0], "allowed", actions, ActionNames()).tolist() == wanted


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[0.0], [2.0]], r"row 8, column 'allowed': holds 2, .*\[0, 1\.5\]"),
        ([[0.0], [None]], "row 8, .* holds nan"),
        ([[0.0], []], r"row 8, column 'allowed': .*no action"),
        ([0.0, 1.5], r"column 'allowed': .*double.*lists"),
        ([["x"], ["y"]], "column 'allowed': holds list"),
    ],
)
def test_impossible_eligible_lists_are_named(lists: list[Any], message: str) -> None:
    with pytest.raises(LogError, match=message):
        eligible_actions(pa.table({"allowed": lists}), "allowed", np.array([0.0, 1.5]), ActionNames(), first_row=6)


def test_eligible_must_be_there_where_the_campaign_has_it(eligible_bundle: Bundle) -> None:
    with pytest.raises(LogError, match=r"column 'allowed': .*missing"):
        eligible_bundle.decide(users(3))


SERVE = """
import sys
for name in ("jax", "jaxlib", "equinox", "optax", "onnx"):
    sys.modules[name] = None  # any import of it raises
import pyarrow as pa
from outlay.bundles.read import load_bundle
found = load_bundle(sys.argv[1]).decide(
    pa.table({"user_id": ["a"], "level": [1], "city": ["Ulm"], "spend": [3.0]})
)
print(found.num_rows)
"""


def test_a_bundle_is_served_without_jax_and_onnx(folder: Path) -> None:
    found = subprocess.run([sys.executable, "-c", SERVE, str(folder)], capture_output=True, text=True, check=False)
    assert (found.stdout.strip(), found.stderr) == ("1", "")


def test_rows_in_states_that_the_log_never_showed_are_counted(bundle: Bundle, table_bundle: Bundle) -> None:
    """They get the action that is best on average over the log's states: 3.0, which is best in two of four."""
    table = users(1_000).set_column(3, "spend", pa.array([10.0] * 500 + [11.0] * 500))
    found = table_bundle.decide(table)
    unseen = (table["level"].to_numpy() == 3) | (table["spend"].to_numpy() == 11)
    assert unseen_rows(found) == unseen.sum() > 500
    assert set(found["action"].to_numpy()[unseen]) == {3.0}
    assert set(found["action"].to_numpy()[~unseen]) == {0.0, 1.5, 3.0}
    assert unseen_rows(bundle.decide(table)) == 0
