"""The command: it lives through the same story as its line says, and judges what seeds hit."""

from collections.abc import Callable, Iterator
from datetime import date, timedelta

import pytest
import typer
from typer.testing import CliRunner, Result

from . import __main__ as command
from .mixture import AnyKind
from .outcome import Outcome
from .probes import ALL_PROBES, Probes


def outcome(seed: int, probes: Probes) -> Outcome:
    return Outcome(
        seed=seed, feed="", hours=0, events=0, deliveries=0, duplicates=0, probes=probes
    )


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(command.main)
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    ("left_out", "arguments", "code"),
    [
        (0, "--seeds 600", 0),
        (1, "--seeds 600", 1),
        (1, "--seeds 599", 0),
        (1, "--seeds 600 --first 600", 0),
        (1, "--seeds 600 --wild", 0),
        (1, "--seeds 600 --seconds 0", 0),
    ],
)
def test_only_the_pinned_seeds_must_hit_every_probe(
    left_out: int, arguments: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = Probes(ALL_PROBES[left_out:])

    def many(
        chunks: Iterator[tuple[range, AnyKind]], _: int, in_time: Callable[[], bool]
    ) -> tuple[list[Outcome], list[object]]:
        lived = [outcome(x, hit) for seeds, _ in chunks if in_time() for x in seeds]
        return lived, []

    monkeypatch.setattr(command, "_many", many)
    assert run(*arguments.split()).exit_code == code


def test_two_days_have_no_seed_in_common() -> None:
    day = date(2026, 11, 25)
    first = command.seeds_of(day)
    assert first == 328 * 100_000
    assert command.seeds_of(day + timedelta(days=1)) == first + 100_000
