"""Charts of results: each can be drawn, and what there is not is refused with what there is."""

from __future__ import annotations

from typing import Any

import experiment_examples
import frontier_examples
import pytest
import vl_convert
from log_examples import report
from report_examples import example

from outlay.core.errors import OutlayError
from outlay.pages.plots import _charts
from telling import missing

RESULTS: list[Any] = [
    frontier_examples.found(),
    frontier_examples.told(),
    report(),
    example().evaluated,
    experiment_examples.example(),
]


@pytest.mark.parametrize("result", RESULTS, ids=lambda each: type(each).__name__)
def test_every_chart_of_a_result_can_be_drawn(result: Any) -> None:
    names = list(_charts(result))
    assert names
    assert result.plot().to_dict() == result.plot(names[0]).to_dict()
    for name in names:
        svg = vl_convert.vegalite_to_svg(result.plot(name).to_dict())
        assert len(svg) > 2_000
        assert "NaN" not in svg


def test_a_chart_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(OutlayError) as refused:
        report().plot("row")
    assert not missing(str(refused.value), "'row'", "rows")
