"""What Spark Connect and serverless Spark have not, and only the local session needs."""

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


def test_nothing_but_the_local_session_touches_a_jvm() -> None:
    local = PIPELINE / "session.py"
    assert touched(local) == {"sparkContext"}, "of the local command"
    assert not touched(*(x for x in PIPELINE.rglob("*.py") if x != local))
