"""The real entry point, run inside the tests' process: code, stdout and stderr of a command."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import NamedTuple
from unittest import mock

from outlay.cli.main import run


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def too_wide(printed: str) -> list[str]:
    """Lines of tables that a screen of 80 columns would break; commands to copy are no tables."""
    return [line for line in printed.splitlines() if len(line) > 80 and line[:2] == "  " and "  outlay " not in line]


def outlay(*arguments: object) -> Result:
    out, err = io.StringIO(), io.StringIO()
    argv = ["outlay", *map(str, arguments)]
    with mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run()
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    if not {"-v", "--verbose", "--json"} & set(argv):
        assert not (wide := too_wide(out.getvalue())), f"a table is wider than a screen: {wide}"
    return Result(code, out.getvalue(), err.getvalue())
