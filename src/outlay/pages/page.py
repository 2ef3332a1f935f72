"""What all pages and figures share: templates, the embedded scripts, colours, fonts, scales, the limit's line.

Figures are there without scripts, as SVG; scripts, embedded once, draw them anew with their tooltips. A content
security policy forbids the page every request, so it works offline, in an archive and behind a strict firewall.
Whatever comes from users' files is escaped; in figures it is only ever data or literal titles, never field names or
expressions. Colours are Okabe and Ito's, which stay apart for the colour-blind; shape or place always says the same as
colour.

Source: Okabe & Ito (2008), "Color Universal Design".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import altair as alt
import numpy as np
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from outlay.core import wording
from outlay.core.campaign import BudgetLimit
from outlay.core.errors import OutlayError
from outlay.core.files import new_file
from outlay.core.version import __version__
from outlay.core.wording import NONE, plain
from outlay.pages.tables import limit, per

Spec = dict[str, Any]
Item = TypeVar("Item")

INK, QUIET, LINE = "#1f2933", "#66727f", "#c9d1d9"
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072b2", "#d55e00", "#009e73", "#a5528a", "#7a838c"
BLUES = ["#deebf7", "#6baed6", "#08306b"]  # light to dark: the higher the value given
SERIES = (ORANGE, BLUE, GREEN, PURPLE, GREY)
_FIELDS = ("field", "expr", "filter", "calculate", "as", "groupby", "fold", "key", "type", "op", "name", "test", "mark")
_CODE = re.compile(r"(<(?:script|style|code|pre)\b.*?</(?:script|style|code|pre)>|<[^>]*>)", re.DOTALL)
_LABEL = re.compile(r"""(\b(?:aria-label|title|alt)=")([^"]*)(")""")
STATIC = 470  # pixels that a chart is wide where no script draws it anew
MAX_POINTS = 400  # of a line; more cannot be seen and would only make the page heavy

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_TEXT = {"labelFont": FONT, "titleFont": FONT, "labelColor": QUIET, "titleColor": INK, "titleFontWeight": "normal"}
CONFIG: Spec = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        **_TEXT,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titlePadding": 8,
        "gridColor": "#e8ecf0",
        "domainColor": LINE,
        "tickColor": LINE,
        "labelOverlap": True,
        "titleLimit": 420,
        "labelLimit": 170,
    },
    "legend": {
        **_TEXT,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "symbolSize": 90,
        "labelLimit": 260,
        "titleLimit": 240,
        "orient": "bottom",
        "columnPadding": 16,
    },
    "text": {"font": FONT, "fontSize": 11, "color": INK},
}


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

    @property
    def svg(self) -> Markup:
        """The chart as it is without scripts; ids in it are its own, and its place says in words what it shows."""
        drawn = re.sub(r' (?:aria-[a-z]+|role)="[^"]*"', "", _drawn({"config": CONFIG, **self.spec, "width": STATIC}))
        own = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{self.name}-", drawn)
        return Markup(own)  # of our own dependency, which escapes what comes from files


def _drawn(spec: Spec) -> str:
    """A chart as SVG; the same one is drawn once."""
    return _drawn_once(json.dumps(spec, allow_nan=False))


@lru_cache(maxsize=64)
def _drawn_once(spec: str) -> str:
    svg: str = vl_convert.vegalite_to_svg(json.loads(spec))
    return svg


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
    environment.filters |= {"setting": _setting, "limit": limit, "per": per}
    environment.globals |= {"words": wording, "version": __version__, "config": CONFIG}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template(name)


def check_page_path(path: str | Path) -> Path:
    """The path, if a page may be written there; to be called before the work is done that it shows.

    Raises:
        OutlayError: if it does not end in .html, or is a folder.
    """
    path = Path(path)
    if path.suffix != ".html" or path.is_dir():
        raise OutlayError(f"is {str(path)!r}.", where="--report", way_out="Give a file that ends in .html.")
    return path


def write_page(html: str, path: str | Path) -> Path:
    """Write a page: one self-contained file; an existing one is replaced as a whole.

    Raises:
        OutlayError: as `check_page_path`.
    """
    path = check_page_path(path)
    with new_file(path) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return path


def in_colours(spec: Spec) -> Markup:
    """A chart as SVG that needs no script, in the colours of the page's style, so that it follows its dark mode.

    Args:
        spec: Vega-Lite whose colours are `var(--…)`.
    """
    axis = {
        **CONFIG["axis"],
        "gridColor": "var(--grid)",
        "labelColor": "var(--quiet)",
        "titleColor": "var(--quiet)",
        "domain": False,
        "ticks": False,
        "labelPadding": 6,
        "titleAnchor": "end",
    }
    legend = {**CONFIG["legend"], "labelColor": "var(--ink)", "titleColor": "var(--quiet)"}
    svg = _drawn({**spec, "config": {**CONFIG, "axis": axis, "legend": legend}})
    svg = re.sub(r' (xmlns(:xlink)?|version|aria-\w+|role|pointer-events)="[^"]*"', "", svg)
    svg = re.sub(r' (d|transform)="[^"]*"', lambda places: re.sub(r"(\.\d)\d+", r"\1", places[0]), svg)
    return Markup(re.sub(r' width="\d+" height="\d+"', ' aria-hidden="true"', svg, count=1))  # Vega escapes texts


def rendered(
    name: str, figures: Mapping[str, Sequence[Figure]], told: Callable[[str], str] | None = None, **content: Any
) -> str:
    """Return a page: a template with its figures by section, each drawn in the place of its name.

    Args:
        name: of the template.
        figures: by section.
        told: what every sentence of it passes through (`Campaign.timed`); None: nothing.
        content: of the template.
    """
    if told is not None:
        figures = {
            part: [replace(each, title=told(each.title), spec=told_value(each.spec, told)) for each in made]
            for part, made in figures.items()
        }
    specs = {figure.name: figure.spec for made in figures.values() for figure in made}
    page = template(name).render(figures=figures, specs=specs, scripts=scripts() if specs else None, **content)
    return page if told is None else told_page(page, told)


def told_page(page: str, told: Callable[[str], str]) -> str:
    """A page with its texts, and what a screen reader says, passed through `told`; code and scripts are left."""
    parts = _CODE.split(page)
    for i in range(0, len(parts), 2):  # between them stand tags, scripts and code
        parts[i] = told(parts[i])
    for i in range(1, len(parts), 2):
        parts[i] = _LABEL.sub(lambda found: f"{found[1]}{told(found[2])}{found[3]}", parts[i])
    return "".join(parts)


def told_value(value: Any, told: Callable[[str], str], key: str = "") -> Any:
    """What a script reads, with its words passed through `told`: all texts but names of fields and expressions."""
    if isinstance(value, str):
        return value if key in _FIELDS else told(value)
    if isinstance(value, Mapping):
        return {name: told_value(each, told, name) for name, each in value.items()}
    return [told_value(each, told, key) for each in value] if isinstance(value, list | tuple) else value


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
        return plain(value)
    return NONE if value is None else str(value)


def limit_line(budget: BudgetLimit, along: Literal["x", "y"], scale: Any) -> list[Any]:
    """A dashed rule at a limit with its words."""
    return rule_line(
        budget.limit, f"{'at most' if budget.sign > 0 else 'at least'} {plain(budget.limit)}", along, scale
    )


def rule_line(value: float, said: str, along: Literal["x", "y"], scale: Any) -> list[Any]:
    """A dashed rule with its words, standing on the x axis or lying across from the y axis."""
    chart = alt.Chart(inline([{"limit": value, "words": said}]))
    rule = chart.mark_rule(color=INK, strokeDash=[5, 4], strokeWidth=1.4)
    low, high = scale["domain"]
    if along == "x":
        right = value > low + 0.75 * (high - low)  # no room for the words beyond the rule
        look: dict[str, Any] = {"align": "right" if right else "left", "baseline": "top", "dx": -4 if right else 4}
        place: dict[str, Any] = {"x": alt.X("limit:Q", scale=scale), "y": alt.value(2)}
        rules = rule.encode(x=place["x"])
    else:
        look = {"align": "right", "baseline": "bottom", "dy": -4}
        place = {"x": alt.value(alt.ExprRef("width")), "y": alt.Y("limit:Q", scale=scale)}
        rules = rule.encode(y=place["y"])
    texts = chart.encode(text="words:N", **place)
    halo = texts.mark_text(fontSize=10.5, stroke="white", strokeWidth=3, strokeJoin="round", **look)
    return [rules, halo, texts.mark_text(fontSize=10.5, color=INK, **look)]


def along_x(field: str, title: str, scale: Any) -> Any:
    """A quantity across the page, with as many ticks as there is room for."""
    return alt.X(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=alt.ExprRef("ceil(width / 90)")))


def scale_around(values: Iterable[float | None], pad: float = 0.08) -> Any:
    """A linear scale around the values, not from zero, with a little air."""
    known = [v for v in values if v is not None and math.isfinite(v)] or [0.0, 1.0]
    low, high = min(known), max(known)
    air = pad * (high - low) or abs(high) * 0.1 or 1.0
    return alt.Scale(domain=[low - air, high + air], nice=False, zero=False, clamp=False)


def middle(values: Sequence[float]) -> list[float]:
    """The ends of what belongs together, three quartile ranges around the middle half at most.

    The first networks of a training are wild; they must not squeeze all others into a corner.
    """
    known = np.array([v for v in values if math.isfinite(v)])
    if not known.size:
        return []
    low, high = np.quantile(known, [0.25, 0.75])
    reach = 3 * (high - low)
    inside = known[(known >= low - reach) & (known <= high + reach)]
    return [float(inside.min()), float(inside.max())]


def thinned(points: Sequence[Item]) -> list[Item]:
    """At most MAX_POINTS of them, evenly spaced, the last one kept."""
    if len(points) <= MAX_POINTS:
        return list(points)
    return [points[int(i)] for i in np.linspace(0, len(points) - 1, MAX_POINTS)]


def cycled(items: Sequence[Any], places: Iterable[int]) -> list[Any]:
    """The item of each place, from the start again after the last."""
    return [items[i % len(items)] for i in places]


def named_colors(colors: dict[str, str]) -> Any:
    """A colour scale {name: colour}."""
    return alt.Scale(domain=list(colors), range=list(colors.values()))


def text_tip(field: str) -> Any:
    """A name in a tooltip."""
    return alt.Tooltip(f"{field}:N")


def value_tip(field: str, title: str) -> Any:
    """A number in a tooltip, to four digits."""
    return alt.Tooltip(f"{field}:Q", title=title, format=",.4~g")


def inline(rows: Sequence[Spec]) -> Spec:
    """Rows in the specification itself, to six digits; what is not finite becomes null, which no mark draws."""
    # A tuple, since Altair copies a list with all that is in it, once for every layer that is put on another.
    return {"values": tuple({key: _drawable(value) for key, value in row.items()} for row in rows)}


def _drawable(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def finished(chart: Any, height: int, description: str) -> Spec:
    """The specification, as wide as its place; the description is what a screen reader says."""
    whole = chart.properties(width="container", height=height, description=description)
    spec: Spec = whole.to_dict(validate=False)  # the parts were checked when they were made; checking rows takes long
    # The scripts of the page decide the version; an address in the page would look like a request.
    del spec["$schema"], spec["config"]
    return {**spec, "autosize": {"type": "fit-x", "contains": "padding"}}
