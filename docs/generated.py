"""Pages of the site that are made from something else: the commands' help and the keys of the campaign file from the
code, and a page of each notebook.

MkDocs calls the two functions at the end (`hooks` in mkdocs.yml).
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel

from outlay.cli.main import app
from outlay.core import campaign, event_tables

KINDS = (  # annotations in words, in this order
    (r"\bPositive\b|\bDelay\b|\bint\b", "whole number"),
    (r"\bOneOrMore\b", "text or list of texts"),
    (r"\bstr\b", "text"),
    (r"\bfloat\b", "number"),
    (r"\bbool\b", "true or false"),
    (r"\bdatetime\.date\b", "date"),
    (r"\bGiven\b", "amount or name"),
    (r"Literal\[([^\]]*)\]", r"\1"),
    (r"tuple\[(\w[\w ]*), \.\.\.\]", r"list: \1"),
    (r"tuple\[([^\]]*)\]", r"list: \1"),
    (r"dict\[text, ([^\]]*)\]", r"table: \1"),
    (r"\b\w+Section\b|\bFeatures\b", "a section"),
    (r" \| ", " or "),
)
WIDTH = 80  # columns of a terminal
SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("[campaign]", campaign.Meta),
    ("[log]", campaign.LogSection),
    ("[log.features]", campaign.Features),
    ("[log.history]", campaign.HistorySection),
    ("[log.reading]", campaign.ReadingSection),
    ("[log.events]", campaign.EventsSection),
    ("[[events]]", event_tables.EventTable),
    ("[rows]", event_tables.RowsSection),
    ("[[budget]]", campaign.Budget),
    ("[labels]", campaign.Labels),
    ("[train]", campaign.Train),
)
OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./((?:examples|benchmarks)[^)]*)\)")


def commands_page() -> str:
    """What `--help` prints, of every command."""
    parts = [
        "# Commands\n\nWhat `outlay COMMAND --help` prints. [Errors and exit codes](errors.md) has a page of its own."
    ]
    for words, text in _helps(typer.main.get_command(app), ("outlay",)):
        parts.append(f"## {' '.join(words)}\n\n```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def keys_page() -> str:
    """A table for every section of the campaign file: key, what it takes, its default, and the comment beside it."""
    parts = [
        "# Keys of the campaign file\n\nMade from the code that reads the file, so no key is missing. "
        "[The campaign file](../campaign.md) explains them with examples."
    ]
    for name, model in SECTIONS:
        rows = ["| key | takes | default | |", "|---|---|---|---|"]
        notes = _comments(model)
        for field, info in model.model_fields.items():
            if info.exclude:
                continue
            default = "required" if info.is_required() else _cell(_shown(info.get_default(call_default_factory=True)))
            kind = _cell(_kind(model, field))
            rows.append(f"| `{info.alias or field}` | {kind} | {default} | {_cell(notes.get(field, ''))} |")
        parts.append(f"## {name.strip('[]')}\n\n`{name}`: {_first_line(model)}\n\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def notebook_page(path: Path) -> str:
    """A notebook as it was executed last: its text, its code, and what the code printed."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "text/html" in data:
                parts.append(f'<div class="output" style="overflow-x: auto">{"".join(data["text/html"])}</div>')
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    parts.append(f"*This page is a notebook that was run: [{path.name}]({path.name}).*")
    return "\n\n".join(parts) + "\n"


def _helps(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every command's words and help, depth first."""
    context = command.make_context(" ".join(words), [], resilient_parsing=True, terminal_width=WIDTH)
    yield words, context.get_help()
    for name, below in getattr(command, "commands", {}).items():
        yield from _helps(below, (*words, name))


def _comments(model: type[BaseModel]) -> dict[str, str]:
    """The comments at a model's fields: behind the field, or on lines of their own right above it."""
    source = inspect.getsource(model)
    comments = {
        token.start[0]: (token.string.lstrip("# "), not token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found = {}
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        behind = [comments[line][0] for line in range(node.lineno, node.end_lineno + 1) if line in comments]
        above, line = [], node.lineno - 1
        while line in comments and not comments[line][1]:
            above.insert(0, comments[line][0])
            line -= 1
        found[node.target.id] = " ".join([*above, *behind])
    return found


def _kind(model: type[BaseModel], field: str) -> str:
    """The annotation of a field as the code writes it, without limits and defaults."""
    owner = next(cls for cls in model.__mro__ if field in inspect.get_annotations(cls))
    kind = str(inspect.get_annotations(owner)[field])
    kind = re.sub(r"\bAnnotated\[([\w.]+), Field\([^()]*\)\]", r"\1", kind.replace(" | None", ""))
    for pattern, words in KINDS:
        kind = re.sub(pattern, words, kind)
    return kind


def _shown(value: Any) -> str:
    if isinstance(value, BaseModel):
        return "its own"
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | list):
        return f"`{[*value]!r}`"
    return f"`{value!r}`".replace("'", '"')


def _first_line(model: type[BaseModel]) -> str:
    text = inspect.getdoc(model) or ""
    return text.split("\n\n")[0].replace("\n", " ").split(": ", 1)[-1]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, text in (("commands", commands_page()), ("campaign-keys", keys_page())):
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    for path in sorted(Path(config.docs_dir).glob("notebooks/*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook_page(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to files outside docs/ lead nowhere from the site: they become the names of those files."""
    return OUTSIDE.sub(lambda link: f"{link[1]} (`{link[2]}`)", markdown)
