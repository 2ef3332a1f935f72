"""Actions with names, and logs with one row per user: the analyst's file as it is."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import outlay
from outlay.choosing.reserve import reserves
from outlay.choosing.run import Run
from outlay.cli.experiment import _arm
from outlay.core.actions import ActionNames, shown
from outlay.core.errors import OutlayError
from outlay.core.reserves import TOO_LOW
from outlay.jobs.allocate import allocate_users
from telling import missing

OFFERS = ("none", "10% off", "men's mail")
PRICES = """{ "10% off" = 1.5, "men's mail" = 0.15 }"""


def offers(users: int = 300, days: int = 3, names: tuple[Any, ...] = OFFERS, seed: int = 0) -> dict[str, list[Any]]:
    """A row per user and day, in which the second action helps."""
    rng = np.random.default_rng(seed)
    rows = users * days
    place = rng.integers(0, len(names), rows)
    return {
        "customer": [f"K{i // days:04d}" for i in range(rows)],
        "day": [i % days for i in range(rows)],
        "tier": rng.choice(["gold", "tin"], rows).tolist(),
        "offer": [names[i] for i in place],
        "visit": (rng.random(rows) < 0.2 + 0.4 * (place == 1)).astype(int).tolist(),
    }


def written(
    folder: Path,
    columns: dict[str, list[Any]],
    *,
    log: str = 'user = "customer"\ntime = "day"',
    campaign: str = 'none = "none"',
    cost: str = PRICES,
    budget: str = "",
    name: str = "log.csv",
) -> Path:
    """Write the log and its campaign file; the path of the latter."""
    folder.mkdir(exist_ok=True)
    if name.endswith(".csv"):
        pacsv.write_csv(pa.table(columns), folder / name)
    else:
        pq.write_table(pa.table(columns), folder / name)
    path = folder / "campaign.toml"
    path.write_text(
        f'[campaign]\nname = "offers"\n{campaign}\n[log]\nsource = "{name}"\naction = "offer"\nreward = "visit"\n'
        f'randomised = true\n{log}\n[log.features]\ncategorical = ["tier"]\n[[budget]]\nname = "money"\ncost = {cost}\n'
        f"at_most = 0.5\n{budget}\n"
    )
    return path


def test_a_log_with_names_is_checked_and_prepared_under_them(tmp_path: Path) -> None:
    path = written(tmp_path, offers())

    report = outlay.check(path).to_dict()
    data = outlay.prepare(path, tmp_path / "data")

    assert [each["action"] for each in report["actions"]] == ["none", "10% off", "men's mail"]
    assert [each["action"] for each in report["overlap"]] == ["none", "10% off", "men's mail"]
    assert list(report["contrast"]) == ["none", "men's mail"]
    assert data.called == ["none", "10% off", "men's mail"]
    cost = dict(zip(data.called, [0.0, 1.5, 0.15], strict=True))
    wanted = [cost[name] for name in offers()["offer"]]
    assert np.allclose(data.outcome[:, 1], wanted)
    assert data.campaign.none == 0
    assert data.campaign.names.degree(4) == 0  # names have no amounts to smooth over


def test_an_order_and_amounts_may_be_given(tmp_path: Path) -> None:
    log = 'user = "customer"\ntime = "day"\nactions = ["none", "men\'s mail", "10% off"]\namounts = [0, 1, 10]'
    data = outlay.prepare(written(tmp_path, offers(), log=log), tmp_path / "data")

    assert data.called == ["none", "men's mail", "10% off"]
    assert data.actions.tolist() == [0, 1, 10]
    assert data.campaign.names.degree(4) == 4


@pytest.mark.usefixtures("untested_state")
@pytest.mark.parametrize(
    ("names", "none", "called"),
    [
        ((False, True), "false", ["false", "true"]),
        ((False, True), "0.0", ["false", "true"]),
        ((False, True), '"false"', ["false", "true"]),
        (("No", "Yes"), '"No"', ["No", "Yes"]),
        ((0, 1), "0", [0, 1]),
        (("0", "1"), "0", [0, 1]),
        (("control", "mens", "womens"), '"control"', ["control", "mens", "womens"]),
        (("5% off", "10% off"), '"5% off"', ["5% off", "10% off"]),
    ],
)
@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_actions_are_called_as_the_log_calls_them(
    tmp_path: Path, names: tuple[Any, ...], none: str, called: list[Any], name: str
) -> None:
    columns, cost = offers(names=names), f'{{ "{called[1]}" = 0.15 }}'
    path = written(tmp_path, columns, campaign=f"none = {none}", cost=cost, name=name)

    assert [each.called for each in outlay.check(path).actions] == called
    data = outlay.prepare(path, tmp_path / "data")
    assert data.called == called
    assert np.allclose(data.outcome[:, 1].sum(), 0.15 * sum(each == names[1] for each in columns["offer"]))


def test_arms_that_are_numbers_may_be_names(tmp_path: Path) -> None:
    log = 'user = "customer"\ntime = "day"\nactions = ["1", "2", "3"]'
    path = written(tmp_path, offers(names=(1, 2, 3)), log=log, campaign="", cost='{ "2" = 0.15 }')
    data = outlay.prepare(path, tmp_path / "data")

    assert data.called == ["1", "2", "3"]
    assert data.campaign.names.degree(4) == 0


def test_sql_on_the_action_means_the_column_as_it_is(tmp_path: Path) -> None:
    cost = """'''case offer when '10% off' then 1.5 * visit else 0 end'''"""
    reserve = """reserve = '''case offer when '10% off' then 1.5 else 0.2 end'''"""
    data = outlay.prepare(written(tmp_path, offers(), cost=cost, budget=reserve), tmp_path / "data")

    assert reserves(data, data.campaign).tolist() == [0.2, 1.5, 0.2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """On the log with names; shared, so only read it."""
    folder = tmp_path_factory.mktemp("trained")
    return outlay.train(written(folder, offers()), folder / "run")


def test_what_a_table_says_is_what_is_reserved(trained: Run, tmp_path: Path) -> None:
    assert outlay.load_bundle(trained.bundle).manifest.reserve == (0.0, 1.5, 0.15)
    again = outlay.prepare(trained.folder.parent / "campaign.toml", tmp_path / "again")
    assert again.manifest.data_hash == trained.manifest["data_hash"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"campaign": "none = 0.0"}, r"campaign\.none: is 0, and the actions of the log have names.*'none'"),
        ({"campaign": 'none = "nome"'}, r"campaign\.none: names 'nome'.*Did you mean 'none'\?"),
        ({"cost": '{ "10 % off" = 1.5 }'}, r"budget money\.cost: names '10 % off'.*Did you mean '10% off'\?"),
        ({"cost": '"offer * visit"'}, r"""budget money\.cost.*as in cost = \{ "10% off" = 1\.0"""),
        ({"cost": '{ "10% off" = "1.5" }'}, r"""budget 'money'\.cost: of '10% off' is '1\.5'"""),
        ({"cost": "3"}, r"budget 'money'\.cost: is 3; expected: a text \(a column or SQL\), or a table"),
        (
            {"cost": '"0"', "actions": '["none", "10% off"]'},
            r"log\.actions: \d+ rows have an action that is not listed: \"men's mail\"",
        ),
        ({"actions": "[0, 1, 2]"}, r"log\.actions: lists numbers, and 'offer' has names: '10% off'"),
        ({"actions": '["none", 1]'}, r"log\.actions: lists texts and numbers"),
        ({"actions": '["none", "none"]'}, r"log.*lists 'none' twice|1 distinct"),
        ({"actions": '["none", "10% off", "men\'s mail"]\namounts = [0, 1]'}, r"amounts has 2 numbers and actions 3"),
        ({"actions": '["none", "10% off", "men\'s mail"]\namounts = [0, 1, 1]'}, r"amounts has 1 twice"),
        ({"contrast": '["none", "20% off"]'}, r"log\.contrast: names '20% off'"),
    ],
)
def test_what_does_not_fit_the_names_is_told(tmp_path: Path, changed: dict[str, str], words: str) -> None:
    log = 'user = "customer"\ntime = "day"\n'
    log += "".join(f"{key} = {changed.pop(key)}\n" for key in ("actions", "contrast") if key in changed)
    path = written(tmp_path, offers(), log=log, **changed)
    with pytest.raises(OutlayError, match=words):
        outlay.check(path)


def test_names_are_told_from_amounts() -> None:
    names = ActionNames.of(("none", "a", "b"), (), "none")
    assert [names.value(each) for each in ("none", "a", "b", "c", 1.0)] == [0, 1, 2, None, None]
    assert [names.given(each) for each in (0.0, 1.0, 2.0)] == ["none", "a", "b"]
    unnamed = ActionNames.of(("a", "b"), (), None)
    assert unnamed.given(0.0) == "none"  # what a server gives where nothing else is left
    assert [unnamed.value(each) for each in ("a", "b")] == [1, 2]
    assert ActionNames.of((), (), 0.0).value("1.5") == 1.5
    assert ActionNames.of(("0", "1"), (), 0.0).values == (0, 1)
    assert ActionNames.of(("none", "a"), (), None).given(0.0) == "nothing"  # none is an action as any other here


@pytest.mark.parametrize(
    "log", ['user = "customer"\ntime = "day"', 'user = "customer"', "", 'user = "customer"\ntime = "seen"']
)
def test_a_log_with_one_row_per_user_is_one_step(tmp_path: Path, log: str) -> None:
    columns = offers(users=900, days=1)
    first = datetime.date(2026, 3, 1)
    columns["seen"] = [(first + datetime.timedelta(days=i % 11)) for i in range(900)]
    path = written(tmp_path, columns, log=log)

    report = outlay.check(path)
    data = outlay.prepare(path, tmp_path / "data")

    assert not report.blocks
    assert [finding.message for finding in report.findings if "days" in finding.message] == []
    assert data.campaign.meta.discount == 0
    assert data.campaign.meta.horizon_days == 1
    assert {effect.days for effect in report.effects} == {1}
    assert len(data.users) == 900


def test_a_log_without_time_needs_one_row_per_user(tmp_path: Path) -> None:
    path = written(tmp_path, offers(), log='user = "customer"')
    with pytest.raises(OutlayError, match=r"log\.time: is absent.*900 rows are of 300 users: user 'K0000' has 3"):
        outlay.check(path)


def test_decisions_have_the_names_of_the_log(tmp_path: Path) -> None:
    log = 'user = "customer"\ntime = "day"\nactions = ["none", "men\'s mail", "10% off"]\namounts = [0, 1, 10]\n'
    run = outlay.train(_eligible(tmp_path, log), tmp_path / "run")
    bundle = outlay.load_bundle(run.bundle)
    rows = pa.table({"customer": ["a", "b"], "tier": ["gold", "tin"], "may": [["none"], ["10% off", "none"]]})

    decided = bundle.decide(rows)
    every = bundle.decide(rows, members=True)

    assert decided.column_names[:5] == ["row", "user", "action", "amount", "action_index"]
    assert decided["action"].to_pylist()[0] == "none"
    assert set(decided["action"].to_pylist()) <= {"none", "10% off"}
    amounts = {"none": 0.0, "men's mail": 1.0, "10% off": 10.0}
    for table in (decided, every):
        assert table["amount"].to_pylist() == [amounts[name] for name in table["action"].to_pylist()]
    with pytest.raises(
        OutlayError, match=r"holds '20% off', which is not one of the actions \['none', \"men's mail\", '10% off'\]"
    ):
        bundle.decide(rows.set_column(2, "may", [[["20% off"], ["none"]]]))


def _eligible(folder: Path, log: str) -> Path:
    columns = offers()
    columns["may"] = [list(OFFERS) for _ in columns["offer"]]
    return written(folder, columns, log=log + 'eligible = "may"', name="log.parquet")


def test_a_scored_file_and_an_allocation_have_the_names(trained: Run, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("customer,tier\na,gold\nb,tin\n")

    scored = outlay.score(trained.bundle, rows, tmp_path / "scored.csv")
    listed = allocate_users(trained, rows, 3.0, tmp_path / "listed.csv", cost="reserve")
    nothing = allocate_users(trained, rows, 0.0, tmp_path / "nothing.csv")  # what never costs anything costs nothing

    assert (nothing.cost, nothing.shares["none"]) == (0.0, 1.0)
    assert set(scored.shares) == set(listed.shares) == set(OFFERS)
    for name in ("scored.csv", "listed.csv"):
        assert set(pacsv.read_csv(tmp_path / name)["action"].to_pylist()) <= set(OFFERS)


def test_a_policy_table_names_actions(tmp_path: Path) -> None:
    columns = offers()
    data = outlay.prepare(written(tmp_path, columns), tmp_path / "data")
    table = {"customer": columns["customer"], "day": columns["day"], "men's mail": [1.0] * len(columns["day"])}
    pq.write_table(pa.table(table | {"10% off": [0.0] * 900, "none": [0.0] * 900}), tmp_path / "policy.parquet")

    found = outlay.evaluate(data.folder, policy=tmp_path / "policy.parquet")
    assert {each.action for each in found.shares if each.share == 1} == {"men's mail"}
    pq.write_table(pa.table(table), tmp_path / "policy.parquet")
    with pytest.raises(OutlayError, match=r"has no column for 'none', '10% off'"):
        outlay.evaluate(data.folder, policy=tmp_path / "policy.parquet")


def test_a_policy_table_of_a_log_without_time_needs_none(tmp_path: Path) -> None:
    columns = offers(days=1)
    data = outlay.prepare(written(tmp_path, columns, log='user = "customer"'), tmp_path / "data")
    for more in ({}, {"time": [0] * 300}):
        table = {"customer": columns["customer"], **more, "men's mail": [1.0] * 300, "10% off": [0.0] * 300}
        pq.write_table(pa.table(table | {"none": [0.0] * 300}), tmp_path / "policy.parquet")
        found = outlay.evaluate(data.folder, policy=tmp_path / "policy.parquet")
        assert {each.action for each in found.shares if each.share == 1} == {"men's mail"}
    pq.write_table(pa.table({"user": columns["customer"]}), tmp_path / "policy.parquet")
    with pytest.raises(
        OutlayError, match=r"its first column is 'user'; expected: 'customer'\. Name them as log\.user in"
    ):
        outlay.evaluate(data.folder, policy=tmp_path / "policy.parquet")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"cost": '{ "10% off" = 1.5, " 10% off " = 2 }'},
            r"budget money\.cost: '10% off' and ' 10% off ' are one action",
        ),
        ({"budget": 'reserve = { "10 off" = 1 }'}, r"budget money\.reserve: names '10 off'.*Did you mean '10% off'\?"),
        ({"budget": "reserve = 3"}, r"reserve: is 3; expected: a text"),
    ],
)
def test_tables_of_actions_are_looked_at(tmp_path: Path, changed: dict[str, str], words: str) -> None:
    with pytest.raises(OutlayError, match=words):
        outlay.check(written(tmp_path, offers(), **changed))


@pytest.mark.parametrize(
    ("names", "may", "log", "none"),
    [
        ((False, True), [False, True], "", 'none = "No"'),
        ((False, True), ["No", "Yes"], "", 'none = "No"'),
        ((1, 2), [1, 2], 'actions = ["1", "2"]', 'none = "1"'),
        ((1.0, 2.0), [1.0, 2.0], 'actions = ["1", "2"]', 'none = "1"'),
        (("a", "b"), ["a", "b"], "", 'none = "a"'),
    ],
)
def test_lists_of_allowed_actions_may_hold_what_the_column_does(
    tmp_path: Path, names: tuple[Any, ...], may: list[Any], log: str, none: str
) -> None:
    columns = offers(names=names)
    lists = [may[:1] if name == names[0] and row % 2 else may for row, name in enumerate(columns["offer"])]
    columns["may"] = lists
    log = f'user = "customer"\ntime = "day"\neligible = "may"\n{log}'
    path = written(tmp_path, columns, campaign=none, cost='"visit"', log=log, name="log.parquet")
    data = outlay.prepare(path, tmp_path / "data")
    assert data.allowed(np.arange(900)).tolist() == [[True, len(each) == 2] for each in lists]


def test_names_in_lists_that_are_no_actions_are_told(tmp_path: Path) -> None:
    columns = offers()
    columns["may"] = [[*OFFERS, "20% off"]] * 900
    path = written(tmp_path, columns, log='user = "customer"\ntime = "day"\neligible = "may"', name="log.parquet")
    found = {each.key: each for each in outlay.check(path).findings}["log.eligible"]
    assert (found.level, found.count) == ("warning", 900)
    columns["may"] = [["none", "10% off"]] * 900
    path = written(tmp_path, columns, log='user = "customer"\ntime = "day"\neligible = "may"', name="log.parquet")
    found = {each.key: each for each in outlay.check(path).findings}["log.eligible"]
    assert (found.level, missing(found.message, 'value "men\'s mail"')) == ("error", [])


def test_a_reserve_may_be_a_table(tmp_path: Path) -> None:
    budget = """reserve = { "10% off" = 3, "men's mail" = 0.5 }"""
    data = outlay.prepare(written(tmp_path, offers(), budget=budget), tmp_path / "data")
    assert reserves(data, data.campaign).tolist() == [0, 3, 0.5]
    path = written(tmp_path, offers(), budget='reserve = { "10% off" = 1 }')
    found = [each for each in outlay.check(path).findings if each.level == "error"]
    assert [(each.key, each.way_out) for each in found] == [("budget.reserve", TOO_LOW)]


def test_sql_of_a_reserve_sees_the_column_as_it_is(tmp_path: Path) -> None:
    """Truth values, whole numbers, and bins by their upper edges."""
    columns = offers(names=("No", "Yes"))
    budget = "reserve = 'case when offer then 2 else 0 end'"
    path = written(tmp_path, columns, campaign='none = "No"', cost="{ Yes = 1 }", budget=budget)
    data = outlay.prepare(path, tmp_path / "a")
    assert reserves(data, data.campaign).tolist() == [0, 2]
    log = 'user = "customer"\ntime = "day"\nactions = ["0", "1", "2"]'
    columns, budget = offers(names=(0, 1, 2)), 'reserve = "offer"'
    path = written(tmp_path, columns, campaign='none = "0"', log=log, cost='"offer * visit"', budget=budget)
    data = outlay.prepare(path, tmp_path / "b")
    assert reserves(data, data.campaign).tolist() == [0, 1, 2]
    columns = offers()
    columns["offer"] = np.random.default_rng(3).uniform(0, 10, 900).tolist()
    columns["may"] = [[1.0, 8.0, 9.5]] * 900
    log = 'user = "customer"\ntime = "day"\nbins = [0, 5, 8, 10]\neligible = "may"\nforced = "offer < 8 and offer >= 5"'
    path = written(tmp_path, columns, campaign="", cost='"offer"', log=log, budget=budget, name="log.parquet")
    report, data = outlay.check(path), outlay.prepare(path, tmp_path / "c")
    assert reserves(data, data.campaign).tolist() == [5, 8, 10]
    assert "budget.reserve" not in [each.key for each in report.findings]
    assert data.allowed(np.arange(3)).tolist() == [[True, False, True]] * 3


@pytest.mark.usefixtures("untested_state")
@pytest.mark.parametrize("bins", ["4", "[0, 3, 6, 10]"])
@pytest.mark.parametrize("none", ["none = 0.0", ""])
def test_continuous_amounts_are_put_into_bins(tmp_path: Path, bins: str, none: str) -> None:
    columns = offers()
    rng = np.random.default_rng(3)
    columns["offer"] = np.where(rng.random(900) < 0.2, 0.0, rng.uniform(0, 10, 900)).tolist()
    log = 'user = "customer"\ntime = "day"\n'
    path = written(tmp_path, columns, campaign=none, cost='"offer * visit"', log=log)
    with pytest.raises(OutlayError, match=r"log\.action: has about .*write bins = 6 under \[log\]"):
        outlay.prepare(path, tmp_path / "data")

    path = written(tmp_path, columns, campaign=none, cost='"offer * visit"', log=f"{log}bins = {bins}")
    report, data = outlay.check(path), outlay.prepare(path, tmp_path / "data")

    amounts, given = np.array(columns["offer"]), np.asarray(data.action)
    assert [each.called for each in report.actions] == data.called
    assert ("0" in data.called) == bool(none)
    assert data.num_actions == (4 if bins == "4" else 3) + bool(none)
    for place, value in enumerate(data.actions):
        assert amounts[given == place].mean() == pytest.approx(value, rel=1e-4)
        assert value == 0 or amounts[given == place].max() - amounts[given == place].min() < 4
    assert np.allclose(data.outcome[:, 1], amounts * np.array(columns["visit"]), rtol=1e-5)
    again = data.campaign.read_as(data.campaign)
    assert outlay.Campaign.load(path).read_as(data.campaign) == again == data.campaign


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("bins = [0, 5, 3]", "in ascending order"),
        ("bins = [0, 3, 5]", r"log\.bins: \d+ rows have an amount outside of the edges"),
        ("bins = 4\nactions = [1, 2]", "bins and actions are both given"),
        ("bins = 1", r"bins is 1; expected: from 2 to 50, or edges, as \[0, 5, 10, 20\]"),
    ],
)
def test_bins_that_do_not_fit_are_told(tmp_path: Path, log: str, words: str) -> None:
    columns = offers()
    columns["offer"] = np.random.default_rng(3).uniform(0, 10, 900).tolist()
    path = written(tmp_path, columns, campaign="", cost='"0"', log=f'user = "customer"\ntime = "day"\n{log}')
    with pytest.raises(OutlayError, match=words):
        outlay.check(path)


def test_a_log_of_days_may_have_seen_each_user_once_so_far(tmp_path: Path) -> None:
    log = 'user = "customer"\ntime = "day"\nonce = false'
    report = outlay.check(written(tmp_path, offers(days=1), log=log))
    assert not report.once
    assert "campaign.discount" in [finding.key for finding in report.findings]


def test_what_would_break_a_line_is_shown_escaped() -> None:
    assert shown("men's\nmail\t\u202e") == "men's\\nmail\\t\\u202e"
    assert shown("20 % off 👩‍👧") == "20 % off 👩‍👧"


@pytest.mark.parametrize(
    ("action", "called"),
    [("10% off, big", "10% off, big"), ("2", "2"), ("01", None), ("nome", None)],
)
def test_an_arm_names_its_action(tmp_path: Path, action: str, called: str | None) -> None:
    names = ("2", "none", "10% off, big")
    log = 'user = "customer"\ntime = "cast(day as date)"'
    columns = offers(names=names, days=1)
    columns["day"] = ["2026-01-01"] * 300
    path = written(tmp_path, columns, log=log, cost='{ "2" = 0.5 }', name="log.parquet")
    arms = [_arm(f"a,action={action},share=0.5,budget=10"), _arm("b,random,share=0.5,budget=10")]
    test = {"name": "T", "salt": "T", "start": "2027-01-04", "days": 7}
    design = {"experiment": test, "arm": arms}
    if called is None:
        with pytest.raises(OutlayError, match=r"arm 'a'\.action: is .*, which is not an action of the campaign"):
            outlay.plan_experiment(design, path, tmp_path / "experiment.toml")
        return
    plan = outlay.plan_experiment(design, path, tmp_path / "experiment.toml")
    assert plan.experiment.arms[0].action == called


@pytest.mark.usefixtures("untested_state")
@pytest.mark.parametrize(("none", "level"), [("7", "warning"), ("0", "note"), ("1", None)])
def test_a_number_that_no_row_has_is_told_if_it_is_to_mean_nothing(
    tmp_path: Path, none: str, level: str | None
) -> None:
    path = written(tmp_path, offers(names=(1, 2, 3)), campaign=f"none = {none}", cost='"offer * visit"')
    found = {each.key: each.level for each in outlay.check(path).findings}
    assert found.get("campaign.none") == level
