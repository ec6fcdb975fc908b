"""What a plot shows, read from the figure that matplotlib has of it."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bisector.report.drawing import Plot, styled

WIDER = 1.04  # a band than its values


@dataclass
class Drawn:
    """A panel: the points of each entry of the legend (what has none is under ""), its bands, its ticks."""

    axes: Axes
    points: dict[str, list[tuple[Any, Any]]] = field(default_factory=lambda: defaultdict(list))
    bands: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.axes.get_title("left")

    @property
    def ticks(self) -> list[str]:
        return [label.get_text() for label in self.axes.get_xticklabels()]

    def values(self, label: str) -> list[Any]:
        return [y for _, y in self.points[label]]


def panels(plot: Plot) -> list[Drawn]:
    with styled():
        return list(map(_panel, plot.figure().axes))


def _panel(axes: Axes) -> Drawn:
    made = Drawn(axes)
    for line in axes.get_lines():
        label = str(line.get_label())
        points = zip(np.ravel(line.get_xdata()).tolist(), np.ravel(line.get_ydata()).tolist(), strict=True)
        made.points["" if label.startswith("_") else label] += points
    for patch in axes.patches:
        ends = patch.get_patch_transform().transform(patch.get_path().vertices)[:, 1]
        made.bands[str(patch.get_label())] = (WIDER * float(ends.min()), float(ends.max()) / WIDER)
    for shade in axes.collections:
        ends = np.concatenate([path.vertices for path in shade.get_paths()])[:, 1]
        made.bands[str(shade.get_label())] = (float(ends.min()), float(ends.max()))
    return made
