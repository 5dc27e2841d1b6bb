"""What Spark Connect and serverless Spark have not, and the source does without."""

import ast
from pathlib import Path

PIPELINE = Path(__file__).parents[4] / "pipeline"
OF_A_JVM = {"_jvm", "_jdf", "_jsc", "_sc", "sparkContext"}


def touched(*files: Path) -> set[str]:
    return {
        x.attr
        for file in files
        for x in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(x, ast.Attribute) and x.attr in OF_A_JVM
    }


def test_the_source_and_its_sink_touch_no_jvm() -> None:
    assert touched(PIPELINE / "session.py") == {"sparkContext"}, "of the local command"
    sink = PIPELINE / "tables/delta_sink.py"
    assert not touched(*(PIPELINE / "source").glob("*.py"), sink)
