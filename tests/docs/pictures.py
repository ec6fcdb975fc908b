"""The picture of README.md: a real run of either side, drawn as the page of a report draws it, for light and for dark.

``python -m tests.docs.pictures`` writes the files anew.
"""

from collections.abc import Mapping

from bisector.core import resources
from bisector.report.blocks import Role
from bisector.report.drawing import DARK, Picture, draw, following
from bisector.report.plots import CurvesPlot, TracedKernel
from tests.report.curve_examples import real

DOCS = resources.ROOT / "docs"
_TITLE = "IOPS over time of two kernels on a dm-cache that is full"
_THRESHOLD = 1363.0


def drawn() -> Mapping[str, bytes]:
    """The files, by their names in docs/: a cache that is full, before and after the change."""
    kernels = (
        TracedKernel("before the change (broken)", (real("broken"),), Role.WORSE),
        TracedKernel("after it (fixed)", (real("fixed"),), Role.BETTER),
    )
    plot = CurvesPlot(_TITLE, kernels, line=_THRESHOLD)
    dark = following(plot).replace(DARK.encode(), b"all")
    return {"curves.svg": draw(plot, Picture.SVG), "curves-dark.svg": dark}


if __name__ == "__main__":
    for name, picture in drawn().items():
        (DOCS / name).write_bytes(picture)
