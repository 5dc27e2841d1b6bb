"""Prometheus' own checker of rules: apt-get install prometheus."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.processes import ended

RULES = Path(__file__).parents[2] / "deploy/helm/changefeed/files/changefeed.rules.yaml"


def promtool(*arguments: str | Path) -> None:
    """Run it; fail with what it says. Skip the test where it is missing."""
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    done = ended(tool, *arguments, cwd=RULES.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def check_alerts(
    folder: Path, series: Mapping[str, str], minutes: int, fired: Sequence[str]
) -> None:
    """Assert that of all rules exactly ``fired`` have fired by the end of these minutes."""
    expected = [{"labels": f'{{alertname="{x}"}}', "value": 1} for x in sorted(fired)]
    check_expressions(
        folder,
        series,
        minutes,
        {'group by (alertname) (last_over_time(ALERTS{alertstate="firing"}[1w]))': expected},
    )


def check_expressions(
    folder: Path,
    series: Mapping[str, str],
    minutes: int,
    expected: Mapping[str, Sequence[Mapping[str, object]]],
    *,
    each: str = "1m",
) -> None:
    """Assert what expressions give at the end of these minutes, over these series.

    Rules are evaluated once in ``each``: five minutes at most, for so long a value counts.
    """
    file = folder / "rules.test.json"
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": each,
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": x, "values": y} for x, y in series.items()],
                "promql_expr_test": [
                    {"expr": x, "eval_time": f"{minutes - 1}m", "exp_samples": y}
                    for x, y in expected.items()
                ],
            }
        ],
    }
    file.write_text(json.dumps(document))
    promtool("test", "rules", file)
