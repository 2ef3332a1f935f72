"""Settings files: read, checked against their model, and refused in words.

    class ServeConfig(Settings): ...
    config = ServeConfig.load("serve.toml")

An error says the file, the key, what was found and the way out. It tells the first unknown key, or else the first
problem.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from outlay.core.errors import OutlayError, nearest

WANTED = {
    "int": "a whole number",
    "int_from_float": "a whole number",
    "float": "a number, as 0.5",
    "finite_number": "a finite number",
    "date": "a date, as 2027-03-31",
    "bool": "true or false",
    "string": "a text",
    "string_too_short": "a text",
    "model_type": "a section",
    "list": "a list",
    "tuple": "a list",
    "dict": "a table",
}
BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
KINDS_OF_BOUNDS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}


DECIMAL_COMMA = re.compile(r"^\s*([-\w.]+\s*=\s*[-+]?\d+,\d+)", re.MULTILINE)


def impossible(found: str, way_out: str = "") -> PydanticCustomError:
    """The error that a validator raises; unlike a ValueError, it is shown without a prefix of pydantic's."""
    return PydanticCustomError("value_error", "{found}", {"found": found, "way_out": way_out})


class Section(BaseModel):
    """A section of a settings file: it takes no unknown key and no infinite number, and cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_text_for_a_number(cls, value: Any, field: ValidationInfo) -> Any:
        """Refuse `"0.4"` and `true` where a number is meant, which pydantic would read as one."""
        assert field.field_name is not None
        kinds = _kinds(cls.model_fields[field.field_name].annotation)
        if isinstance(value, str | bool) and kinds <= {int, float}:
            raise impossible(f"is {value!r}; expected: {WANTED['float' if float in kinds else 'int']}")
        return value


class Settings(Section):
    """A settings file, read and checked.

    Attributes:
        file_kind: such a file in words, e.g. "a campaign.toml".
        if_absent: the way out where there is no file.
        error: class of its errors.
        path: the file it was read from, or None.
    """

    file_kind: ClassVar[str]
    if_absent: ClassVar[str]
    error: ClassVar[type[OutlayError]] = OutlayError

    path: Path | None = Field(default=None, exclude=True)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read and check a file.

        Raises:
            OutlayError: if it is missing, not TOML, or has an unknown key or an impossible value.
        """
        return cls.parse(cls.content(path), Path(path))

    @classmethod
    def content(cls, path: str | Path) -> dict[str, Any]:
        """Return the parsed TOML of a file; its keys and values are not checked.

        Raises:
            OutlayError: if it is missing or not TOML.
        """
        not_one = f"{{}}; {cls.file_kind} is expected."
        try:
            text = Path(path).read_text(encoding="utf-8")
            return tomllib.loads(text)
        except TypeError:
            found = f"{repr(path)[:40]} is not the path of a file."
            raise cls.error(found, way_out=f"Give {cls.file_kind}.") from None
        except FileNotFoundError:
            raise cls.error("does not exist.", file=path, way_out=cls.if_absent) from None
        except IsADirectoryError:
            raise cls.error(not_one.format("is a folder"), file=path, way_out="Give the file itself.") from None
        except UnicodeDecodeError:
            raise cls.error(not_one.format("is not a text file"), file=path, way_out=cls.if_absent) from None
        except OSError as error:
            raise cls.error(f"cannot be read: {error.strerror}.", file=path, way_out=f"Give {cls.file_kind}.") from None
        except tomllib.TOMLDecodeError as error:
            way_out = "Fix that line." if Path(path).suffix == ".toml" else f"Give {cls.file_kind}."
            if (comma := DECIMAL_COMMA.search(text)) is not None:
                way_out = f"Write numbers with a decimal point: {comma[1].replace(',', '.')}."
            raise cls.error(f"is not valid TOML: {error}.", file=path, way_out=way_out) from None

    @classmethod
    def parse(cls, content: Mapping[str, Any], path: Path | None = None) -> Self:
        """Return the settings in parsed TOML. `path` names the file in messages and anchors relative paths.

        Raises:
            OutlayError: if there is an unknown key or an impossible value.
        """
        if "path" in content:
            raise cls.error("unknown key.", file=path, where="path", way_out="Remove it.")
        try:
            return cls.model_validate(content if path is None else {**content, "path": path})
        except ValidationError as error:
            found, where, way_out = _in_words(error, content, cls)
            way_out = way_out or ("Change it." if path is None else "Fix the file.")
            raise cls.error(found, file=path, where=where or None, way_out=way_out) from None


def _kinds(annotation: Any) -> set[Any]:
    """The types that an annotation allows beside None."""
    parts = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _kinds(parts[0])
    if get_origin(annotation) in (Union, UnionType):
        return set().union(*map(_kinds, parts))
    return {annotation} - {NoneType}


def _in_words(error: ValidationError, content: Mapping[str, Any], model: type[Settings]) -> tuple[str, str, str]:
    """What was found, where, and the way out; no way out where a value is impossible."""
    problems = error.errors()
    # A key that is unknown is often a required one, written wrongly: to say that it is missing would not show where.
    first = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    where = _place(first["loc"], content)
    if first["type"] == "extra_forbidden":
        *section, key = first["loc"]
        return "unknown key.", where, nearest(str(key), _known_keys(model, section), "Known keys")
    if first["type"] == "missing":
        return "is missing.", where, "Add it."
    if first["type"] == "value_error":
        way_out = str(first.get("ctx", {}).get("way_out", ""))
        return first["msg"].rstrip(".") + "." * (not first["msg"].endswith("?")), where, way_out
    return f"is {first['input']!r}; expected: {_wanted(first)}.", where, ""


def _known_keys(model: Any, section: Sequence[int | str]) -> list[str]:
    """What a section may hold, in words that the file uses."""
    for key in section:
        if isinstance(key, str):
            kind = next(field.annotation for name, field in model.model_fields.items() if key in (name, field.alias))
            model = next(part for part in (kind, *get_args(kind)) if hasattr(part, "model_fields"))
    return sorted(field.alias or name for name, field in model.model_fields.items() if name != "path")


def _wanted(problem: Any) -> str:
    """What should stand there: pydantic's own words where ours say no more."""
    kind, context = problem["type"], problem.get("ctx", {})
    for ending in ("_parsing", "_type", "_from_datetime_parsing", "_from_datetime_inexact"):
        if (name := kind.removesuffix(ending)) != kind and name in WANTED:
            return WANTED[name]
    for key, words in BOUNDS.items():
        if key in context and kind in KINDS_OF_BOUNDS:
            return f"{words} {context[key]:g}"
    if kind == "too_short":
        return f"at least {context['min_length']} in it"
    if kind == "literal_error":
        return str(context["expected"])
    if kind == "string_pattern_mismatch":
        return f"a text that fits {context['pattern']}"
    return WANTED.get(kind) or str(problem["msg"])


def _place(path: tuple[int | str, ...], content: Any) -> str:
    """`arm 'new'.share`: what has a name is called by it."""
    parts: list[str] = []
    for step in path:
        try:
            content = content[step]
        except (LookupError, TypeError):  # a key that is missing, or one that only the model has
            content = None
        if isinstance(step, str):
            parts.append(step)
        elif isinstance(content, Mapping) and isinstance(content.get("name"), str):
            parts[-1] += f" {content['name']!r}"
        else:
            parts[-1] += f"[{step}]"
    return ".".join(parts)
