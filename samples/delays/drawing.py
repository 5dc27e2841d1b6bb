"""The picture: the mean delay of each carrier's departures, and how many there were."""

from pathlib import Path

from matplotlib.figure import Figure

from .tables import Kept


def draw(kept: Kept, file: Path) -> None:
    """Write a PNG of one bar for each carrier, the latest one on top."""
    means = sorted(
        (delay / count, carrier, count) for carrier, (count, delay) in kept.departures().items()
    )
    figure = Figure(figsize=(8, 0.4 * len(means) + 1.5), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh([carrier for _, carrier, _ in means], [mean for mean, _, _ in means])
    axes.bar_label(bars, [f"{count:,}" for _, _, count in means], padding=3, fontsize=8)
    axes.set_xlabel("mean delay of a departure, in minutes (and how many departures)")
    axes.set_title("Departures from New York City, 2013")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, format="png", dpi=120)
