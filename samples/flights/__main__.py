"""The command line: ``python -m samples.flights``, which is ``make demo``.

Ends with 0 if the proof holds, with 1 if it does not or the hosts failed, with 2 if
something has to be changed first, with 130 when interrupted.
"""

import asyncio
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from changefeed.feeds.errors import FeedError
from changefeed.runtime.errors import StoreError, UserError
from samples.delays.tables import NoTable, NotKept

from .data import NoFlights
from .fleet import Standstill
from .place import Place, Plan
from .play import Outcome, play, prove_hosts
from .processes import ProcessEnded
from .proof import in_words, told
from .screen import Screen
from .tables import java_is_found, keep_tables, prove_kept

NEXT_STEPS = """
What next, with an observer and changes of your own:

  . .venv/bin/activate
  changefeed produce data/log samples/hello/people.jsonl --key=name
  changefeed run --processes=2 --observer=samples.hello.greeting:greet

Another terminal: changefeed status. Each host serves a page, at the address that its log names.
docs/getting-started.md goes through it; cosmos.md and pipeline.md beside it begin alike.
"""


def main(
    *,
    scale: Annotated[
        float, typer.Option(min=0.0005, max=1.0, help="Which part of the flights to take.")
    ] = 1.0,
    hosts: Annotated[int, typer.Option(min=1, max=12, help="How many hosts to start.")] = 4,
    seconds: Annotated[
        float,
        typer.Option(min=0, help="Deliver for so long at least; 0 for as fast as it goes."),
    ] = 15.0,
    tables: Annotated[
        bool, typer.Option(help="Make tables of the same feed, with Spark.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Chooses the flights and whom to kill.")] = 2013,
    keep: Annotated[
        Path | None, typer.Option(help="Keep everything in this directory, a new one.")
    ] = None,
    prove: Annotated[
        Path | None, typer.Option(help="Only prove again what --keep kept there.")
    ] = None,
) -> None:
    """Read a year of flights with a fleet of hosts, kill one, and prove the result.

    Then make tables of the same feed with Spark, and prove that they say the same.
    """
    screen = Screen(Console())
    plan = Plan(scale=scale, seed=seed, hosts=hosts, seconds=seconds, tables=tables)
    try:
        if prove is not None:
            holds = asyncio.run(_prove(_kept(prove), screen))
        else:
            with _directory(keep) as directory:
                holds = asyncio.run(_play_and_prove(Place(directory=directory), plan, screen))
    except NotKept as error:
        raise _ending(2 if error.code == 2 else 1, error) from None
    except (ProcessEnded, Standstill, NoTable) as error:
        raise _ending(1, error) from None
    except (NoFlights, FeedError, StoreError, UserError, OSError) as error:
        raise _ending(2, error) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise _ending(130, "interrupted; what was started is stopped") from None
    if holds:
        screen.tell(NEXT_STEPS)
    raise typer.Exit(0 if holds else 1)


def _ending(code: int, why: object) -> typer.Exit:
    typer.echo(f"demo: {why}", err=True)
    return typer.Exit(code)


async def _play_and_prove(place: Place, plan: Plan, screen: Screen) -> bool:
    task = asyncio.current_task()
    assert task is not None, "a coroutine that runs has a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    if plan.tables:
        java_is_found()  # or the first half would be for nothing
    await play(place, plan, screen)
    hosts = await _prove_hosts(place, screen)
    if plan.tables:
        await keep_tables(place, hosts.expected.changes, screen)
    return _prove_tables(place, hosts, screen)


async def _prove(place: Place, screen: Screen) -> bool:
    hosts = await _prove_hosts(place, screen)
    return _prove_tables(place, hosts, screen)


async def _prove_hosts(place: Place, screen: Screen) -> Outcome:
    screen.say("proving what the hosts did")
    hosts = await prove_hosts(place)
    screen.tell(f"\n{in_words(hosts.proof)}\n")
    return hosts


def _prove_tables(place: Place, hosts: Outcome, screen: Screen) -> bool:
    """Show all figures; return whether both halves hold, or the one there is."""
    found = {"hosts": hosts.observed}
    if not place.read_plan().tables:
        screen.result(hosts.expected.carriers, found)
        return hosts.proof.holds
    screen.say("proving what is in the tables")
    claims, figures = prove_kept(place, hosts)
    screen.tell(f"\n{told(claims)}\n")
    screen.result(hosts.expected.carriers, {**found, "tables": figures})
    return hosts.proof.holds and all(x.holds for x in claims)


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="flights-") as directory:
            yield Path(directory)
        return
    keep = keep.expanduser().resolve()
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise typer.BadParameter(f"{keep} is not empty: name a new directory")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep


def _kept(directory: Path) -> Place:
    place = Place(directory=directory.expanduser().resolve())
    if not place.plan.is_file():
        raise typer.BadParameter(f"{directory} holds no run: make one with --keep {directory}")
    return place


if __name__ == "__main__":
    typer.run(main)
