"""What ``--json`` prints, against the schemas that the site has."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from changefeed.cli.app import app
from changefeed.leases.addresses import open_container
from changefeed.log.directory.feed import EventLog
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.observers.dead_letters import open_dead_letters
from tests.support import make
from tests.support.broker_cluster import COLLECTION, TOKEN, broker
from tests.support.commands import every_command
from tests.support.pipeline_feeds import a_checkpoint
from tests.support.schemas_page import DOCUMENTS, check_document

pytestmark = pytest.mark.real_time

PLACES = ("--feed=eventlog:log", "--leases=sqlite:leases.db")
LETTERS = "--set=observer.dead_letters=sqlite:letters.db"


def called(*arguments: str, token: str = "") -> Result:
    environ = {"CHANGEFEED_BACKENDS__BROKERS__TOKEN": token} if token else {}
    done = CliRunner().invoke(app, [*arguments, "--json"], env=environ)
    assert done.exit_code == 0, done.output
    return done


def test_every_command_that_prints_a_document_has_a_schema() -> None:
    found = every_command()
    assert {x for x, one in found.items() if "--json" in flags(one)} == {*DOCUMENTS}


def flags(command: Any) -> set[str]:
    return {y for x in command.params for y in x.opts}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def make_fleet() -> None:
    async with (
        EventLog.open(Path("log")) as feed,
        open_container("sqlite:leases.db") as container,
    ):
        (found,) = await feed.ranges()
        at = await feed.start(found, "beginning")
        await container.create(make.lease(found, "ben", at=at))
    async with open_dead_letters("sqlite:letters.db") as letters:
        await letters.put(make.letter(1))


def test_documents_of_a_fleet_and_of_its_tables_are_as_their_schemas_say(home: Path) -> None:
    a_checkpoint(home)
    asyncio.run(make_fleet())
    seen = check_document("status", called("status", *PLACES).stdout)
    assert [x["owner"] for x in seen["ranges"]] == ["ben"]
    assert check_document("doctor", called("doctor", "--watch=0", *PLACES).stdout)
    listing = "dead-letters", "list", LETTERS
    (head,) = check_document("dead-letters list", called(*listing).stdout)
    (shown,) = check_document("dead-letters list", called(*listing, head["id"]).stdout)
    assert ("body" in head, "body" in shown, shown["key"]) == (False, True, head["key"])
    places = ("--feed=eventlog:log", "--directory=tables")
    tables = check_document("pipeline status", called("pipeline", "status", *places).stdout)
    assert [x["lag"] for x in tables["tables"]] == [70, None]
    (done,) = check_document("log compact", called("log", "compact", "log").stdout)
    assert done["records"] == 100


async def test_the_document_of_a_collection_is_as_its_schema_says() -> None:
    async with broker(MemoryStore()) as (core, address):
        await core.catalogs.create(COLLECTION, parts=1)
        where = f"brokers://{address}/{COLLECTION}"
        done = await asyncio.to_thread(called, "log", "status", where, token=TOKEN)
    seen = check_document("log status", done.stdout)
    assert [x["says"]["writing"] for x in seen["brokers"].values()] == [True]
