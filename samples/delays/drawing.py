"""The picture: the mean delay of each carrier's departures, and how many there were."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from .tables import Departures


def draw(departures: Mapping[str, Departures], file: Path) -> None:
    """Write a PNG of one bar for each carrier, the latest one on top."""
    bars = sorted((x.mean, carrier, x.count) for carrier, x in departures.items())
    figure = Figure(figsize=(8, 0.4 * len(bars) + 1.5), layout="constrained")
    axes = figure.subplots()
    drawn = axes.barh([carrier for _, carrier, _ in bars], [mean for mean, _, _ in bars])
    axes.bar_label(drawn, [f"{count:,}" for _, _, count in bars], padding=3, fontsize=8)
    axes.set_xlabel("mean delay of a departure, in minutes (and how many departures)")
    axes.set_title("Departures from New York City, 2013")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, format="png", dpi=120)
