"""Curves of reward against compute in a file: points, fits, bands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from surefoot.methods.scaling import Points
from surefoot.report import palette
from surefoot.report.plots import GROUP_COLOURS, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.evaluation.scaling_profile import CurveFit


def plot_fits(fits: Sequence[tuple[Points, CurveFit]], file: Path) -> None:
    """Each run's points with its fitted curve and the band of it, compute on a logarithmic axis.

    Raises:
        ConfigError: a file name that ends in neither .png nor .svg.
        MissingExtraError: Matplotlib is not installed.
    """

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for number, (points, fit) in enumerate(fits):
            colour = GROUP_COLOURS[number % len(GROUP_COLOURS)]
            x = np.geomspace(points.compute.min(), points.compute.max() * 2, 120)
            low, high = fit.band(x)
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(x, fit.fit.reward(x), color=colour, linewidth=1.8, label=points.name)
            axes.plot(points.compute, points.reward, "o", color=colour, markersize=3)
        axes.set_xscale("log")
        axes.set_xlabel(
            {
                "tokens": "generated tokens",
                "flops": "estimated operations (FLOPs)",
                "seconds": "seconds",
                "steps": "steps",
            }.get(fits[0][0].unit, "compute")
        )
        axes.set_title(f"Held-out reward, fit and {100 * fits[0][1].confidence:g} % band")
        axes.grid(True, axis="y", color=palette.LINE)
        axes.legend(loc="best")

    save_figure(file, draw, size=(6.4, 3.6))
