"""What the benchmark of brokers computes from what it has measured and counted."""

from pathlib import Path

from benchmarks.brokers.costs import page, read_counted

ROOT = Path(__file__).parents[3]


def test_the_page_of_clusters_has_the_table_that_the_counts_make() -> None:
    said = (ROOT / "docs/cluster.md").read_text()
    advice = "put in what this prints: python -m benchmarks.brokers.costs"
    assert page(read_counted()) in said, advice
