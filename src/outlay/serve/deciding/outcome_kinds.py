"""Which kinds of outcomes are accepted: those that move money, those that serve.toml names, and those a campaign needs.

    declared = redeemed, refund  ∪  outcomes of serve.toml  ∪  columns of reward, terminal and the costs but the money's

A kind becomes a column of the exported log, and column names ignore case. So a kind that was not declared, perhaps
misspelt, is refused when it arrives, and two kinds that differ only by case are one.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from outlay.serve.config import MONEY_KINDS
from outlay.serve.deciding.loaded_bundle import ARM_BUNDLE, BUNDLE
from outlay.serve.ledger.ledger import Ledger

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROLES = ("user", "time", "action", "propensity", "forced", "eligible")


def declared_outcome_kinds(ledger: Ledger, campaign: str, named: Iterable[str]) -> tuple[str, ...]:
    """Return all kinds that are accepted, those that move money first.

    Args:
        ledger: knows every bundle that was ever in service: outcomes of an earlier one may still arrive.
        campaign: its name.
        named: kinds named by the settings and by the test that is served.

    Raises:
        LedgerError: if the ledger cannot be read.
    """
    notes = [note for kind in (BUNDLE, ARM_BUNDLE) for note in ledger.notes(campaign, kind)]
    bundles = [json.loads(note.content)["campaign"] for note in notes]
    kinds = [*MONEY_KINDS, *named, *(kind for each in bundles for kind in campaign_outcome_kinds(each))]
    return tuple(_unique(kinds))


def campaign_outcome_kinds(campaign: Mapping[str, Any]) -> list[str]:
    """Return the kinds that a campaign's reward, end and costs are made of, in the order in which they are found.

    Args:
        campaign: the content of a campaign file.
    """
    import duckdb  # not before it is needed: the server's garbage collector leaves alone what was loaded at its start

    log, budgets = campaign["log"], campaign["budget"]
    money = next((budget for budget in budgets if budget.get("money")), budgets[0])  # the one that the ledger pays
    features = log["features"]
    known = [*features.get("categorical", ()), *features.get("numeric", ()), *(log.get(role) for role in ROLES)]
    wanted = [log["reward"], log.get("terminal"), *(each["cost"] for each in budgets if each is not money)]
    with closing(duckdb.connect()) as connection:
        taken = {name.casefold() for text in known if text for name in (text, *expression_columns(connection, text))}
        found = [name for text in wanted if text for name in expression_columns(connection, text)]
    return [name for name in _unique(found) if name.casefold() not in taken]


def nearest_outcome_kind(kind: str, declared: Iterable[str]) -> str | None:
    """Return the declared kind that is spelt most like it, or None."""
    folded = {each.casefold(): each for each in declared}
    near = difflib.get_close_matches(kind.casefold(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def _unique(names: Iterable[str]) -> Iterable[str]:
    """Return the first of those that differ only by case, as SQL reads them."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.casefold(), name)
    return found.values()


def expression_columns(connection: DuckDBPyConnection, text: str) -> list[str]:
    """Return the columns that an SQL expression names; none if it is not an expression."""
    [(tree,)] = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT (\n{text}\n)"]).fetchall()
    return list(_named(json.loads(tree)))


def _named(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if tree.get("class") == "COLUMN_REF":
            yield str(tree["column_names"][-1])
        for part in tree.values():
            yield from _named(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from _named(part)
