"""What every page with figures is made of: templates, the embedded scripts, figures.

The scripts that draw the figures are embedded once; a content security policy forbids the page every request, so it
works offline, in an archive and behind a strict firewall. Whatever comes from users' files is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from outlay.pages import words
from outlay.pages.style import Spec


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its title.

    Attributes:
        name: its id on the page.
        title: what it shows, short.
        spec: Vega-Lite.
    """

    name: str
    title: str
    spec: Spec


@cache
def template(name: str) -> Template:
    """Return the template of a page in this folder; it may include others."""
    environment = Environment(
        loader=PackageLoader("outlay.pages", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["setting"] = _setting
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template(name)


@cache
def scripts() -> Markup:
    """Return Vega, Vega-Lite and Vega-Embed in one script that can be embedded in HTML."""
    source: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return Markup(source.replace("</script", "<\\/script").replace("<!--", "<\\!--"))  # our own dependency's text


def _setting(value: object) -> str:
    """Return a setting as a person writes it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_setting(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_setting(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return words.plain(value)
    return words.NONE if value is None else str(value)
