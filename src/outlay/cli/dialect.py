"""One dialect for every command: options have one name each, errors say what stood where; former names keep working.

outlay frontier run --budget 1.5 -o bundle          # -h, -o, -q and -v mean the same everywhere
outlay frontier run --budget 1.5 --export bundle    # a former name, which no help shows
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, get_args, get_origin

import typer
from typer.core import TyperCommand

from outlay.core.errors import OutlayError, nearest
from outlay.core.settings import WANTED

FORMER = {
    "export-log": {"--campaign": "--name"},
    "frontier": {"--export": "--out"},
    "prepare": {"--cluster": "--ray"},
    "score": {"--cluster": "--ray"},
}  # command → former name of an option → its name


def _processed(option: Any, context: Any, given: Any) -> Any:
    """The value of an option; where it is none, the error says so as of a settings file.

    Raises:
        OutlayError: for text where a number is expected, an infinite number, or a name that is none of a choice.
    """
    texts = given if isinstance(given, list | tuple) else [given]
    try:
        value = type(option).process_value(option, context, given)
    except typer.BadParameter:
        described = getattr(option, "type_descriptor", None)  # older Typers have none, and keep their own words
        kind: Any = getattr(described, "annotation", None)
        kind = get_args(kind)[0] if get_origin(kind) is list else kind
        wrong = next((each for each in texts if not _is(kind, each)), None)
        if wrong is None:
            raise
        if names := get_args(kind):
            raise OutlayError(f"is {wrong!r}.", where=_name(option), way_out=nearest(wrong, names)) from None
        found = f"is {wrong!r}; expected: {WANTED[kind.__name__]}."
        raise OutlayError(found, where=_name(option), way_out=f"See {context.command_path} -h.") from None
    for each in value if isinstance(value, list | tuple) else [value]:
        if isinstance(each, float) and not math.isfinite(each):
            found = f"is {each}; expected: {WANTED['finite_number']}."
            raise OutlayError(found, where=_name(option), way_out=f"See {context.command_path} -h.")
    return value


def _is(kind: Any, text: Any) -> bool:
    """Whether a text is a number, or one of a choice of names; True of any other kind."""
    if names := get_args(kind):
        return text in names
    try:
        return kind not in (int, float) or kind(text) is not None
    except (TypeError, ValueError):
        return False


def _name(option: Any) -> str:
    return str(option.metavar if option.param_type_name == "argument" else option.opts[0])


class Command(TyperCommand):
    """A command that still knows the former names of its options, and by whose options errors are told."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Values of the options, refused in words where they are none."""
        for each in self.params:
            each.process_value = partial(_processed, each)  # type: ignore[method-assign]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run it; an error about an argument of Python is one about the option."""
        try:
            return super().invoke(ctx)
        except OutlayError as error:
            names = {str(each.name): _name(each) for each in self.params}
            if error.file is not None or error.where not in names:
                raise
            raise OutlayError(error.found, where=names[error.where], way_out=error.way_out) from None

    def make_parser(self, ctx: Any) -> Any:
        """The parser, to which former names are the same options."""
        former = FORMER.get(self.name or "", {})
        before = {id(each): each.opts for each in self.params}
        for each in self.params:
            each.opts = [*each.opts, *(old for old, name in former.items() if name in each.opts)]
        try:
            return super().make_parser(ctx)
        finally:
            for each in self.params:
                each.opts = before[id(each)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments and options by their metavars: RUN, not RUN <path>."""
        told: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for each in self.get_params(ctx):
            if (record := each.get_help_record(ctx)) is not None:
                argument = each.param_type_name == "argument"
                row = (each.metavar, record[1]) if argument and each.metavar else record
                told["Arguments" if argument else "Options"].append(row)
        for title, rows in told.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
