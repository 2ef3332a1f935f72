"""One dialect: short options on every verb, former names, errors as JSON, and exit codes for pipelines."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.main import get_command

from command_line import outlay
from outlay.cli.dialect import FORMER
from outlay.cli.main import app
from outlay.core.version import __version__


def verbs() -> list[list[str]]:
    """Every command, with those of a group."""
    found: list[list[str]] = []
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += [[name]] if inner is None else [[name, each] for each in inner]
    return found


@pytest.mark.parametrize("words", verbs(), ids=" ".join)
def test_every_verb_takes_h_and_names_values_in_words(words: list[str]) -> None:
    short, long = outlay(*words, "-h"), outlay(*words, "--help")
    assert short == long
    assert short.code == 0
    assert "Example" in short.out
    for shape in ("<path>", "<str>", "<int", "<float"):
        assert shape not in short.out
    assert max(map(len, short.out.splitlines())) <= 80


def test_the_version_has_a_short_name() -> None:
    assert outlay("-V") == outlay("--version") == (0, f"outlay {__version__}\n", "")


def test_former_names_of_options_work_and_are_not_shown() -> None:
    for verb, names in FORMER.items():
        help_text = outlay(verb, "-h").out
        for old, new in names.items():
            assert f" {old} " not in help_text.replace(f" {new} ", " ")
            assert f"No such option: {old}" not in outlay(verb, old, "x").err


@pytest.mark.parametrize("words", verbs(), ids=" ".join)
def test_what_is_no_number_is_refused_by_the_options_name(words: list[str]) -> None:
    command: Any = get_command(app)
    for word in words:
        command = command.commands[word]
    for option in (each.opts[0] for each in command.params if each.metavar in ("NUMBER", "SHARE", "SECONDS")):
        for text, wanted in (("nan", "number"), ("abc", "number")):
            found = outlay(*words, option, text)
            assert found.code == 2, found.err
            assert re.search(rf"error: {option}: is '?{text}'?; expected: a .*{wanted}", found.err), found.err


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("train", "x", "--out", "y", "--method", "fronteir"), "--method: is 'fronteir'. Did you mean 'frontier'?"),
        (("simulate", "habbit", "--out", "y"), "CAMPAIGN: is 'habbit'. Did you mean 'habit'?"),
        (("evaluate", "x", "--fail-on", "xyz"), "--fail-on: names 'xyz'. Give some of: not-certified"),
        (("compare", "x", "--oracles", "nope"), "--oracles: is nope. Give some of: ddqn"),
        (("compare", "x", "--rows", "frontier"), "No such option: --rows"),
    ],
)
def test_a_wrong_name_is_told_by_the_option_with_what_may_stand_there(command: tuple[str, ...], told: str) -> None:
    found = outlay(*command)
    assert found.code == 2
    assert told in found.err


def test_an_error_is_one_json_document_where_json_is_asked_for() -> None:
    found = outlay("check", "no-such.toml", "--json")
    assert found.code == 2
    told = json.loads(found.out)
    assert told["exit_code"] == 2
    assert told["error"]["file"] == "no-such.toml"
    assert told["error"]["what"] == "does not exist."
    assert "outlay init" in told["error"]["way_out"]
