"""One dialect for every command: options have one name each, and former names keep working.

outlay frontier run --budget 1.5 -o bundle          # -h, -o, -q and -v mean the same everywhere
outlay frontier run --budget 1.5 --export bundle    # a former name, which no help shows
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

FORMER = {
    "compare": {"--rows": "--row"},
    "export-log": {"--campaign": "--name"},
    "frontier": {"--export": "--out"},
    "prepare": {"--cluster": "--ray"},
    "score": {"--cluster": "--ray"},
}  # command → former name of an option → its name


class Command(TyperCommand):
    """A command that still knows the former names of its options."""

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
