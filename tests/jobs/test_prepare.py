"""A log becomes DATA: values, links and encodings are those of the log, and wrong input leaves nothing behind."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from campaign_files import campaign_file, panel
from outlay.choosing.folds import views
from outlay.core.errors import CampaignError, FolderError, LogError, OutlayError
from outlay.core.schema import FIRST, MISSING
from outlay.core.transitions import EVERYONE, Transitions
from outlay.jobs.check import check
from outlay.jobs.prepare import prepare
from outlay.ops.hashing import uniform
from outlay.serve.deciding.features import RowEncoder
from telling import missing


def longhand_links(columns: dict[str, Any]) -> tuple[list[int], list[int]]:
    """next_row and gap by a loop."""
    rows = list(zip(columns["user_id"], columns["day"], strict=True))
    following, gaps = [], []
    for user, day in rows:
        later = [(d, i) for i, (u, d) in enumerate(rows) if u == user and d > day]
        following.append(min(later)[1] if later else -1)
        gaps.append(min(later)[0] - day if later else 0)
    return following, gaps


def shuffled(columns: dict[str, Any], seed: int = 1) -> dict[str, Any]:
    order = np.random.default_rng(seed).permutation(len(columns["day"]))
    return {name: [values[i] for i in order] for name, values in columns.items()}


def test_rows_keep_the_order_of_the_file_and_their_values(tmp_path: Path) -> None:
    columns = shuffled(panel())
    data = prepare(campaign_file(tmp_path, columns, log='propensity = "p"'), tmp_path / "DATA")
    assert len(data) == 120
    assert data.actions.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(data.actions[data.action], columns["coupon"])
    np.testing.assert_array_equal(data.outcome[:, 0], columns["active"])
    np.testing.assert_array_equal(data.outcome[:, 1], np.multiply(columns["active"], columns["coupon"]))
    assert data.propensity is not None
    np.testing.assert_allclose(data.propensity, 1 / 3, rtol=1e-6)
    codes, numbers = data.features(np.arange(len(data)))
    values = np.array(data.schema.categorical[0].values)
    np.testing.assert_array_equal(values[codes[:, 0] - FIRST], [str(level) for level in columns["level"]])
    assert numbers.shape == (120, 0)
    assert data.steady


def test_links_are_those_of_a_loop_with_gaps_in_shuffled_rows(tmp_path: Path) -> None:
    columns = panel(days=9)
    keep = np.flatnonzero(np.random.default_rng(2).random(len(columns["day"])) < 0.6)
    columns = shuffled({name: [values[i] for i in keep] for name, values in columns.items()})
    data = prepare(campaign_file(tmp_path, columns, log="complete = false"), tmp_path / "DATA")
    following, gaps = longhand_links(columns)
    np.testing.assert_array_equal(data.next_row, following)
    np.testing.assert_array_equal(data.gap, gaps)
    assert not data.steady
    first_day = {
        user: min(d for u, d in zip(columns["user_id"], columns["day"], strict=True) if u == user)
        for user in set(columns["user_id"])
    }
    expected = [d - first_day[u] for u, d in zip(columns["user_id"], columns["day"], strict=True)]
    np.testing.assert_array_equal(data.day, expected)
    first = data.users["first_row"]
    assert np.all(data.day[first] == 0)
    np.testing.assert_array_equal(data.user[first], np.arange(len(data.users)))
    assert np.all(np.diff(first) > 0)
    windows = [max(columns["day"]) - columns["day"][row] + 1 for row in first]
    np.testing.assert_array_equal(data.users["window"], windows)


def test_users_are_split_by_salted_hash_of_their_text(tmp_path: Path) -> None:
    columns = panel(users=200, days=1)
    columns["user_id"] = list(range(200))
    data = prepare(campaign_file(tmp_path, columns, tail='[train]\nsalt = "other"'), tmp_path / "DATA")
    draw = uniform("other", [str(i) for i in range(200)])
    expected = np.digitize(draw, [0.7, 0.85])
    np.testing.assert_array_equal(data.users["split"], expected)
    assert data.manifest.rows_per_split["learn"] == int((expected == 0).sum())


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_csv_gives_the_same_columns_as_parquet(tmp_path: Path, name: str) -> None:
    columns = panel()
    columns["level"][3] = None
    columns["spend"][5] = float("nan")
    options: dict[str, Any] = {"log": 'propensity = "p"', "numeric": '["spend"]'}
    one = prepare(campaign_file(tmp_path, columns, **options), tmp_path / "ONE")
    two = prepare(campaign_file(tmp_path, columns, name=name, **options), tmp_path / "TWO")
    assert one.manifest.data_hash == two.manifest.data_hash


def test_missing_values_have_a_code_and_a_flag_of_their_own(tmp_path: Path) -> None:
    columns = panel()
    columns["word"] = ["NA", "", "NULL", "NaN", None] + ["a"] * 60 + ["b"] * 55
    columns["spend"][:3] = [float("nan"), None, 7.0]
    path = campaign_file(tmp_path, columns, categorical='["word"]', numeric='["spend"]')
    data = prepare(path, tmp_path / "DATA")
    codes, numbers = data.features(np.arange(120))
    assert data.schema.categorical[0].values.to_pylist() == ["a", "b"]
    assert codes[:5, 0].tolist() == [MISSING] * 5
    assert codes[5, 0] == FIRST
    assert numbers[:3, 1].tolist() == [1, 1, 0]
    known = np.array([x for x in columns["spend"] if x is not None and x == x])
    assert data.schema.numeric[0].mean == pytest.approx(known.mean())
    assert numbers[2, 0] == pytest.approx((7 - known.mean()) / known.std(), rel=1e-5)


def test_vocabulary_is_ordered_by_frequency_then_text_and_typed_by_size(tmp_path: Path) -> None:
    columns = panel(users=400, days=1)
    columns["level"] = [0] * 10 + [7] * 200 + [5] * 10 + [None] * 180
    columns["zip"] = [f"z{i}" for i in range(400)]
    data = prepare(campaign_file(tmp_path, columns, categorical='["level", "zip"]'), tmp_path / "DATA")
    assert data.schema.categorical[0].values.to_pylist() == ["7", "0", "5"]
    assert data.manifest.code_columns == {"codes_uint8": (0,), "codes_uint16": (1,)}
    codes, _ = data.features(np.array([399, 0]))
    assert [data.schema.categorical[1].values[c - FIRST].as_py() for c in codes[:, 1]] == ["z399", "z0"]


def test_forced_terminal_and_eligible_are_kept(tmp_path: Path) -> None:
    columns = panel()
    columns["no_choice"] = [day == 1 for day in columns["day"]]
    columns["left"] = [
        int(day == 3 and user != "u0") for user, day in zip(columns["user_id"], columns["day"], strict=True)
    ]
    columns["allowed"] = [
        [a] if f else ([a, 3.0] if a != 3 else None)
        for a, f in zip(columns["coupon"], columns["no_choice"], strict=True)
    ]
    columns["p"] = [None if f else 0.5 for f in columns["no_choice"]]
    log = 'forced = "no_choice"\nterminal = "left"\neligible = "allowed"\npropensity = "p"'
    data = prepare(campaign_file(tmp_path, columns, log=log), tmp_path / "DATA")
    np.testing.assert_array_equal(data.forced, columns["no_choice"])
    np.testing.assert_array_equal(data.terminal, np.array(columns["left"], bool))
    expected = [[v in a for v in (1, 2, 3)] if a else [True] * 3 for a in columns["allowed"]]
    np.testing.assert_array_equal(data.allowed(np.arange(120)), expected)
    assert data.propensity is not None
    np.testing.assert_allclose(data.propensity, np.where(columns["no_choice"], 1, 0.5))
    assert not data.steady
    assert data.states is not None
    assert data.state is not None
    np.testing.assert_array_equal(data.states.allowed[data.state], expected)


def test_states_give_back_the_features_of_every_row(tmp_path: Path) -> None:
    columns = panel()
    columns["step"] = [float(x % 3) for x in range(120)]
    data = prepare(campaign_file(tmp_path, columns, numeric='["step"]'), tmp_path / "DATA")
    assert data.states is not None
    assert data.state is not None
    codes, numbers = data.features(np.arange(120))
    np.testing.assert_array_equal(data.states.codes[data.state], codes)
    np.testing.assert_array_equal(data.states.numbers[data.state], numbers)
    assert len(data.states) == len({(*map(int, c), *map(float, n)) for c, n in zip(codes, numbers, strict=True)}) == 9


def test_many_states_have_no_index(tmp_path: Path) -> None:
    columns = panel(users=2500, days=2)
    columns["step"] = list(range(5000))
    data = prepare(campaign_file(tmp_path, columns, numeric='["step"]'), tmp_path / "DATA")
    assert data.state is None
    assert data.states is None
    assert not (tmp_path / "DATA" / "columns" / "state.npy").exists()


def test_dates_are_days(tmp_path: Path) -> None:
    columns = panel()
    columns["day"] = [datetime.date(2024, 2, 27) + datetime.timedelta(days=d) for d in columns["day"]]
    data = prepare(campaign_file(tmp_path, columns), tmp_path / "DATA")
    assert set(data.gap.tolist()) == {0, 1}
    assert data.manifest.first_time == "2024-02-27"
    assert data.manifest.last_time == "2024-03-01"


def test_a_timestamp_is_refused_with_the_cast_to_write(tmp_path: Path) -> None:
    columns = panel()
    columns["day"] = [datetime.datetime(2024, 2, 27, 12) + datetime.timedelta(days=d) for d in columns["day"]]
    path = campaign_file(tmp_path, columns)
    with pytest.raises(CampaignError, match=r'log\.time.*timestamp.*"cast\(day as date\)"'):
        prepare(path, tmp_path / "DATA")
    path.write_text(path.read_text().replace('"day"', '"cast(day as date)"'))
    assert set(prepare(path, tmp_path / "DATA").gap.tolist()) == {0, 1}


def test_roles_may_be_expressions_and_a_column_wins_over_one(tmp_path: Path) -> None:
    columns = panel()
    columns["coupon * active"] = [0.25] * 120  # a column of exactly this name: it is the cost
    path = campaign_file(tmp_path, columns, log="where = \"user_id <> 'u4' -- not him\"", categorical='["level * 2"]')
    path.write_text(path.read_text().replace('reward = "active"', 'reward = "spend > 10"'))
    data = prepare(path, tmp_path / "DATA")
    assert len(data) == 116
    np.testing.assert_array_equal(data.outcome[:12, 0], [float(x > 10) for x in columns["spend"][:12]])
    np.testing.assert_array_equal(data.outcome[:, 1], 0.25)
    assert set(data.schema.categorical[0].values.to_pylist()) == {"0", "2", "4"}


def test_segments_are_taken_at_the_first_row_and_missing_is_one(tmp_path: Path) -> None:
    columns = panel()
    segment = "case when day > 0 then 'late' when user_id = 'u0' then null when level = 0 then 'low' else 'high' end"
    data = prepare(campaign_file(tmp_path, columns, log=f'segment = "{segment}"'), tmp_path / "DATA")
    assert data.segments == ("high", "low", "missing")
    named = [data.segments[i] for i in data.users["segment"]]
    assert named[0] == "missing"
    assert named[1:] == ["low" if columns["level"][4 * i] == 0 else "high" for i in range(1, 30)]


def test_start_latest_names_the_last_row(tmp_path: Path) -> None:
    data = prepare(campaign_file(tmp_path, panel(), log='start = "latest"'), tmp_path / "DATA")
    np.testing.assert_array_equal(data.users["start_row"], np.arange(30) * 4 + 3)


def test_complete_adds_the_absent_days(tmp_path: Path) -> None:
    """u0 has days 0 and 3 of 0..4, u1 day 2, then everybody all days. Features of absent days are the last row's."""
    columns = panel(days=5)
    keep = [0, 3, 7, *range(10, 150)]
    columns = {name: [values[i] for i in keep] for name, values in columns.items()}
    columns["p"] = [0.4] * len(keep)
    path = campaign_file(
        tmp_path,
        columns,
        log='complete = true\npropensity = "p"',
        campaign="none = 0.0",
        categorical='["level"]',
        numeric='["spend"]',
    )
    data = prepare(path, tmp_path / "DATA")
    assert len(data) == 5 + 3 + 28 * 5
    assert data.actions.tolist() == [0, 1, 2, 3]
    absent = np.array([1, 2, 4, 6, 7])  # u0: days 1, 2 and 4; u1 from day 2: days 3 and 4
    assert np.flatnonzero(data.forced).tolist() == absent.tolist()
    assert data.action[absent].tolist() == [0] * 5
    assert not data.outcome[absent].any()
    assert data.propensity is not None
    np.testing.assert_allclose(data.propensity[absent], 1)
    codes, numbers = data.features(absent)
    last = data.features(np.array([0, 0, 3, 5, 5]))
    np.testing.assert_array_equal(codes, last[0])
    np.testing.assert_array_equal(numbers[:, 0], last[1][:, 0])
    assert len({*numbers[:, 0]}) > 1
    assert numbers[:, 1].tolist() == [1] * 5
    assert data.day[:8].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert data.next_row[:8].tolist() == [1, 2, 3, 4, -1, 6, 7, -1]
    present = np.setdiff1d(np.arange(len(data)), absent)
    np.testing.assert_array_equal(data.outcome[present, 0], columns["active"])
    all_codes, all_numbers = data.features(present)
    values = np.array(data.schema.categorical[0].values)
    np.testing.assert_array_equal(values[all_codes[:, 0] - FIRST], [str(level) for level in columns["level"]])
    scale = data.schema.numeric[0]
    np.testing.assert_allclose(all_numbers[:, 0] * scale.scale + scale.mean, columns["spend"], rtol=1e-4)
    assert data.states is not None
    assert data.state is not None
    np.testing.assert_array_equal(data.states.codes[data.state][absent], codes)


def test_absent_days_are_told_from_days_with_a_row_where_no_number_can_be_marked(tmp_path: Path) -> None:
    columns = {name: [values[i] for i in (0, 3, *range(4, 120))] for name, values in panel().items()}
    path = campaign_file(
        tmp_path, columns, log="complete = true", campaign="none = 0.0", categorical='["level"]', numeric="[]"
    )
    data = prepare(path, tmp_path / "DATA")
    codes, _ = data.features(np.flatnonzero(data.forced))
    assert codes.tolist() == [[MISSING]] * 2
    assert MISSING not in data.features(np.flatnonzero(~data.forced))[0]


def test_complete_needs_the_action_that_means_nothing(tmp_path: Path) -> None:
    columns = panel()
    with pytest.raises(CampaignError, match=r"campaign\.none.*none = 0\.0"):
        prepare(campaign_file(tmp_path, columns, log="complete = true"), tmp_path / "DATA")


def test_absences_must_be_explained_unless_nothing_comes_later(tmp_path: Path) -> None:
    keep = [i for i in range(120) if i % 10 != 4]
    columns = {name: [values[i] for i in keep] for name, values in panel().items()}
    with pytest.raises(LogError, match="complete = true"):
        prepare(campaign_file(tmp_path, columns), tmp_path / "DATA")
    assert len(prepare(campaign_file(tmp_path, columns, discount=0.0), tmp_path / "DATA")) == 108


def test_weekly_rows_are_regular(tmp_path: Path) -> None:
    columns = panel()
    columns["day"] = [7 * day for day in columns["day"]]
    assert set(prepare(campaign_file(tmp_path, columns), tmp_path / "DATA").gap.tolist()) == {0, 7}


BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "unknown column": (
        {},
        {"log": 'propensity = "prop"'},
        r"campaign\.toml, log\.propensity.*no column 'prop'\. Columns: user_id",
    ),
    "near column": ({}, {"categorical": '["levle"]'}, r"log\.features\.categorical.*'levle'.*Did you mean 'level'\?"),
    "two statements": ({}, {"log": 'segment = "1; drop table x"'}, r"log\.segment.*';'"),
    "an aggregate": ({}, {"log": 'segment = "max(level)"'}, r"log\.segment.*one value per row"),
    "a broken filter": ({}, {"log": 'where = "levl > 1"'}, r"log\.where.*'levl'.*Did you mean 'level'"),
    "nothing left": ({}, {"log": 'where = "level > 9"'}, r"log\.where.*no row passes"),
    "one action": ({"coupon": [2.0] * 120}, {}, r"log\.action.*same action, 2"),
    "NaN reward": (
        {"active": [1.0] * 7 + [float("nan")] + [0.0] * 112},
        {},
        r"log\.reward.*missing or NaN in 1 row, first in row 8 \(user u1, time 3\)",
    ),
    "infinite reward": ({"active": [float("inf")] + [0.0] * 119}, {}, r"log\.reward.*infinite"),
    "reward of 1e300": ({"active": [1e300] + [0.0] * 119}, {}, r"log\.reward: reward is beyond 1e\+30 in 1 row"),
    "action of 1e300": ({"coupon": [1e300] + [1.0] * 119}, {}, r"log\.action: action is beyond 1e\+30 in 1 row"),
    "text reward": ({"active": ["yes"] * 120}, {}, r"log\.reward.*'yes' in row 1 is not a number"),
    "names for amounts": (
        {"coupon": ["ten", "none"] * 60},
        {},
        r"budget coupon_cost\.cost.*coupon \* active.*as in cost = \{ \"none\" = 1\.0, \"ten\" = 2\.0 \}",
    ),
    "negative propensity": (
        {"p": [-0.1] + [0.5] * 119},
        {"log": 'propensity = "p"'},
        r"log\.propensity.*negative.*in 1 row, first in row 1 \(user u0, time 0, value -0\.1\)",
    ),
    "propensity 0": ({"p": [0.0] + [0.5] * 119}, {"log": 'propensity = "p"'}, r"log\.propensity.*is 0"),
    "propensity above 1": ({"p": [1.5] + [0.5] * 119}, {"log": 'propensity = "p"'}, r"log\.propensity.*above 1"),
    "propensity missing": ({"p": [None] + [0.5] * 119}, {"log": 'propensity = "p"'}, r"log\.propensity.*is missing"),
    "propensities that contradict": (
        {"coupon": [2.0] * 100 + [1.0] * 20, "p": [0.5] * 120},
        {"log": 'propensity = "p"'},
        r"log\.propensity.*action 2 was given in 83\.3% of 120 rows, by its propensities 50\.0%.*leave the key out",
    ),
    "unlisted action": ({}, {"log": "actions = [1.0, 2.0]"}, r"log\.actions.*not listed: 3\."),
    "duplicates": ({"day": [0, 0, 1, 2] * 30}, {}, r"log\.user, log\.time.*30 rows repeat.*row 2 \(user u0, time 0\)"),
    "row after the end": ({}, {"log": 'terminal = "day = 1"'}, r"log\.terminal.*30 terminal rows.*later row"),
    "all forced": ({}, {"log": 'forced = "true"'}, r"log\.forced.*every row is forced"),
    "not eligible": ({"ok": [[1.0]] * 120}, {"log": 'eligible = "ok"'}, r"log\.eligible.*not among the eligible"),
    "missing user": ({"user_id": [None] + ["a"] * 119, "day": list(range(120))}, {}, r"log\.user.*missing.*in 1 row"),
    "half days": ({"day": [0.5] + [1.0] * 119}, {}, r"log\.time.*not whole.*0\.5"),
    "text days": ({"day": ["monday"] * 120}, {}, r"log\.time.*VARCHAR.*cast\(day as date\)"),
    "text numbers": ({"spend": ["much"] * 120}, {"numeric": '["spend"]'}, r"log\.features\.numeric.*'much' in row 1"),
    "list feature": ({"ok": [[1.0]] * 120}, {"categorical": '["ok"]'}, r"log\.features\.categorical.*LIST"),
    "foreign contrast": ({}, {"log": "contrast = [1.0, 9.0]"}, r"log\.contrast.*names 9"),
    "a value that breaks an expression": (
        {"code": ["1"] * 119 + ["x"]},
        {"log": 'segment = "cast(code as integer)"'},
        r"log\.segment.*cast\(code as int",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_error_and_leaves_nothing(tmp_path: Path, case: str) -> None:
    changes, options, message = BAD[case]
    path = campaign_file(tmp_path, panel() | changes, **options)
    with pytest.raises(OutlayError) as caught:
        prepare(path, tmp_path / "DATA")
    assert re.search(message, str(caught.value), re.DOTALL), str(caught.value)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["campaign.toml", "log.parquet"]


def test_a_missing_or_empty_log_is_said_so(tmp_path: Path) -> None:
    path = campaign_file(tmp_path, panel())
    (tmp_path / "log.parquet").unlink()
    with pytest.raises(LogError, match=r"log\.parquet: does not exist.*log\.source"):
        prepare(path, tmp_path / "DATA")
    empty = {name: pa.array(values)[:0] for name, values in panel().items()}
    for name in ("log.parquet", "log.csv"):
        with pytest.raises(LogError, match="the log is empty"):
            prepare(campaign_file(tmp_path, empty, name=name), tmp_path / "DATA")
    (tmp_path / "log.csv").write_text("")
    with pytest.raises(LogError, match=r"log\.csv"):
        prepare(tmp_path / "campaign.toml", tmp_path / "DATA")
    campaign_file(tmp_path, panel())
    (tmp_path / "log.parquet").write_text("this is not Parquet")
    with pytest.raises(LogError, match=r"log\.parquet.*cannot be read"):
        prepare(path, tmp_path / "DATA")
    assert not (tmp_path / "DATA").exists()


def test_all_blocking_findings_are_named_at_once(tmp_path: Path) -> None:
    columns = panel() | {"p": [-0.1] * 120, "coupon": [2.0] * 120}
    with pytest.raises(LogError) as caught:
        prepare(campaign_file(tmp_path, columns, log='propensity = "p"'), tmp_path / "DATA")
    assert "same action" in str(caught.value)
    assert "propensity is negative" in str(caught.value)


def test_too_few_users_for_three_parts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"train\.shares.*2 users are too few"):
        prepare(campaign_file(tmp_path, panel(users=2)), tmp_path / "DATA")


def test_an_older_data_folder_is_replaced_and_a_foreign_one_is_not(tmp_path: Path) -> None:
    path = campaign_file(tmp_path, panel())
    first = prepare(path, tmp_path / "DATA").manifest.data_hash
    campaign_file(tmp_path, panel(seed=5))
    assert prepare(path, tmp_path / "DATA").manifest.data_hash != first
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep me")
    with pytest.raises(FolderError, match="did not write it"):
        prepare(path, tmp_path / "mine")
    assert (tmp_path / "mine" / "letter.txt").exists()


def test_a_run_that_is_cut_off_leaves_nothing_that_reads_as_finished(tmp_path: Path) -> None:
    path = campaign_file(tmp_path, panel())

    def stop(_fraction: float, text: str) -> None:
        if text == "encoding features":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(path, tmp_path / "DATA", progress=stop)
    with pytest.raises(FolderError, match=r"is not finished: .* run outlay prepare again"):
        Transitions.open(tmp_path / "DATA")
    data = prepare(path, tmp_path / "DATA")
    (tmp_path / "DATA" / "manifest.json").unlink()
    with pytest.raises(FolderError, match="not a finished DATA folder"):
        Transitions.open(data.folder)


def test_progress_goes_from_nothing_to_all(tmp_path: Path) -> None:
    seen: list[float] = []
    prepare(campaign_file(tmp_path, panel()), tmp_path / "DATA", progress=lambda f, _: seen.append(f))
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert seen[-1] == 1


def test_a_wide_log_is_encoded_field_by_field(tmp_path: Path) -> None:
    """200 categorical columns of 2,000 rows, every eighth with many values; memory: a batch at a time."""
    rng = np.random.default_rng(0)
    columns = panel(users=500, days=4)
    names = [f"f{j}" for j in range(200)]
    for j, name in enumerate(names):
        columns[name] = rng.integers(0, 1000 if j % 8 == 0 else 20, 2000).tolist()
    data = prepare(campaign_file(tmp_path, columns, categorical=str(names).replace("'", '"')), tmp_path / "DATA")
    assert [len(positions) for positions, _ in data.code_columns] == [175, 25]
    rows = rng.integers(0, 2000, 50)
    codes, _ = data.features(rows)
    for j in (0, 1, 8, 199):
        values = np.array(data.schema.categorical[j].values)
        assert values[codes[:, j] - FIRST].tolist() == [str(columns[names[j]][row]) for row in rows]


def test_too_many_values_share_codes_the_same_ones_in_the_log_in_tables_and_in_requests(tmp_path: Path) -> None:
    columns = panel(users=100)
    often, rng = [*range(30), *range(30), *range(10, 20)], np.random.default_rng(0)
    columns["number"] = often + list(range(1000, 1330))
    columns["word"] = [f"w{value}" for value in columns["number"]]
    columns["few"] = rng.integers(0, 20, 400).tolist()
    names = '["number", "word", "few", "number * 2"]'
    path = campaign_file(tmp_path, columns, categorical=names, tail="[train]\nmax_values = 20\nmin_count = 1")
    data = prepare(path, tmp_path / "DATA")
    number, word, few, twice = data.schema.categorical
    thrice, others = [str(i) for i in range(10, 20)], sorted(str(i) for i in [*range(10), *range(20, 30)])
    assert number.values.to_pylist() == [*thrice, *others[:10]]
    assert word.values.to_pylist() == [f"w{value}" for value in number.values.to_pylist()]
    assert [field.size - FIRST for field in (number, word, few, twice)] == [532, 532, 20, 532]
    assert data.manifest.hashed["fields"] == ["number", "word", "number * 2"]
    codes, _ = data.features(np.arange(400))
    assert len(np.unique(codes[70:, 0])) > 200  # of 330 values in 512 codes
    assert codes[70:, :2].min() >= FIRST + 20
    shown = pa.table(
        {name: columns[name] for name in ("number", "word", "few")}
        | {"number * 2": [2 * value for value in columns["number"]]}
    )
    assert np.array_equal(data.schema.encode(shown).codes, codes)
    encoder = RowEncoder(data.schema)
    requests = [*shown.to_pylist(), {"number": 9**9, "word": "new", "few": "", "number * 2": None}]
    rows = [row.codes for row in map(encoder.encode, requests) if row is not None]
    assert np.array_equal(rows[:400], codes)
    assert np.array_equal(rows[400:], data.schema.encode(pa.Table.from_pylist(requests[400:])).codes)
    assert not any(encoder.unknown.values())


def test_one_step_logs_with_a_made_up_user_and_day(tmp_path: Path) -> None:
    path = campaign_file(tmp_path, panel(), discount=0.0, log='terminal = "true"')
    text = path.read_text().replace('"user_id"', '"row_number() over ()"').replace('"day"', '"1"')
    path.write_text(text)
    data = prepare(path, tmp_path / "DATA")
    assert len(data.users) == 120
    assert set(data.next_row.tolist()) == {-1}
    np.testing.assert_array_equal(data.outcome[:, 0], panel()["active"])


def test_a_folder_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    """A finished RUN is not the price of a slip in --out."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "manifest.json").write_text('{"format": "outlay-run", "version": 1}')
    with pytest.raises(FolderError, match=r"RUN folder; .*DATA folder"):
        prepare(campaign_file(tmp_path, panel()), run)
    assert (run / "manifest.json").exists()


# Clusters.


def cities(users: int = 300, count: int = 60) -> dict[str, Any]:
    columns = panel(users=users, days=2)
    columns["city"] = [int(user[1:]) % count for user in columns["user_id"]]
    return columns


def test_a_cluster_is_never_split_and_is_drawn_by_its_own_name(tmp_path: Path) -> None:
    data = prepare(campaign_file(tmp_path, cities(), log='cluster = "city"'), tmp_path / "DATA")
    assert data.cluster is not None
    assert len(data.cluster) == 300
    draw = uniform("outlay", data.drawn_by().to_pylist())
    np.testing.assert_array_equal(data.users["split"], np.digitize(draw, [0.7, 0.85]))
    names = np.array([int(name[1:]) % 60 for name in data.user_ids().to_pylist()])
    assert data.drawn_by().to_pylist() == [str(name) for name in names]
    for cluster in range(60):
        same = data.cluster[names == cluster]
        assert len(set(same.tolist())) == 1
        assert len(set(data.users["split"][names == cluster].tolist())) == 1
    assert data.independent(EVERYONE) == 60
    for number in range(3):
        fold = views(data, 3)[number].users["split"]
        assert all(len(set(fold[names == cluster].tolist())) == 1 for cluster in range(60))


def test_without_clusters_the_data_are_the_same_bytes(tmp_path: Path) -> None:
    data = prepare(campaign_file(tmp_path, cities()), tmp_path / "DATA")
    assert data.cluster is None
    assert data.independent(EVERYONE) == 300
    assert data.manifest.clusters is None
    assert not (data.folder / "clusters.npy").exists()
    assert data.drawn_by().equals(data.user_ids())


def test_the_clusters_belong_to_what_a_certificate_rests_on(tmp_path: Path) -> None:
    columns = cities()
    columns["region"] = [city if city > 3 else city + 100 for city in columns["city"]]
    one = prepare(campaign_file(tmp_path, columns, log='cluster = "city"'), tmp_path / "ONE")
    two = prepare(campaign_file(tmp_path, columns, log='cluster = "city % 30"'), tmp_path / "TWO")
    assert one.manifest.data_hash != two.manifest.data_hash
    assert two.manifest.clusters == 30


def test_a_user_in_two_clusters_is_named(tmp_path: Path) -> None:
    columns = cities()
    columns["city"][7] = 99
    with pytest.raises(LogError, match=r"\b1 user .*one cluster, .*u3: 3 and 99"):
        prepare(campaign_file(tmp_path, columns, log='cluster = "city"'), tmp_path / "DATA")


def test_a_missing_cluster_and_too_few_of_them_are_refused(tmp_path: Path) -> None:
    columns = cities()
    columns["city"][4] = None
    with pytest.raises(LogError, match=r"\b1 row, .*row 5 \(user u2\)"):
        prepare(campaign_file(tmp_path, columns, log='cluster = "city"'), tmp_path / "DATA")
    with pytest.raises(LogError, match="4 clusters, too few"):
        prepare(campaign_file(tmp_path, cities(count=4), log='cluster = "city"'), tmp_path / "DATA")
    shares = "[train]\nshares = [0.97, 0.02, 0.01]"
    with pytest.raises(LogError, match="8 clusters are too few"):
        prepare(campaign_file(tmp_path, cities(count=8), log='cluster = "city"', tail=shares), tmp_path / "DATA")


def test_check_warns_where_few_clusters_certify(tmp_path: Path) -> None:
    few = check(campaign_file(tmp_path, cities(), log='cluster = "city"'))
    (finding,) = (each for each in few.findings if each.where == "log.cluster")
    assert finding.level == "warning"
    assert not missing(finding.message, "9 of 60 clusters")
    many = check(campaign_file(tmp_path, cities(count=300), log='cluster = "city"'))
    assert not [each for each in many.findings if each.where == "log.cluster"]
