"""Every command that is given a wrong place: it says so, and changes nothing."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pytest

from tests.support.commands import every_command
from tests.support.leased_log import make_home
from tests.support.processes import ended

PLACES: Final[Mapping[str, str]] = {
    "folder": "folder",
    "empty": "empty",
    "locked": "locked",
    "read-only": "copy.db",
    "in-locked": "closed/x",
    "below-file": "lines/x",
}

LEASES: Final = "--leases=sqlite:leases.db"
FLEET: Final = f"--feed=eventlog:log {LEASES}"
IN_PLACE: Final = "--leases=sqlite:{place}"
OF_PLACE: Final = "--feed=eventlog:{place}"
LETTERS: Final = "--set=observer.dead_letters={scheme}:{place}"
RANGE: Final = "e1.p01.v00-ff"

WRONG: Final[Mapping[str, Sequence[str]]] = {
    # A command with a place, and the kinds of place that are right for it.
    f"run --observer=log --feed=eventlog:log {IN_PLACE}": ["empty"],
    f"run --observer=log {OF_PLACE} {LEASES}": [],
    f"run --observer=http --option=url=http://h --option=secret_file={{place}} {FLEET}": [],
    f"run --observer=log {FLEET} --set=web.token_file={{place}}": [],
    f"run --observer=log {FLEET} --set=observer.on_failure=dead-letter "
    "--set=observer.dead_letters=jsonl:{place}": ["empty"],
    f"status --feed=eventlog:log {IN_PLACE}": [],
    f"status {FLEET} --config={{place}}": ["empty"],
    f"monitor --feed=eventlog:log {IN_PLACE}": [],
    f"pause --all {IN_PLACE}": [],
    f"resume {IN_PLACE}": [],
    f"reset --all --to=now --yes --feed=eventlog:log {IN_PLACE}": [],
    f"reset --all --to=now --yes {OF_PLACE} {LEASES}": [],
    f"range split {RANGE} --feed=eventlog:log {IN_PLACE}": [],
    f"range merge {RANGE}~00-7f {RANGE}~80-ff --feed=eventlog:log {IN_PLACE}": [],
    f"positions export {{place}} {FLEET}": ["empty", "locked", "read-only"],
    f"positions export - --feed=eventlog:log {IN_PLACE}": [],
    f"positions import {{place}} --yes {FLEET}": [],
    f"positions import checkpoint:{{place}} --yes {FLEET}": [],
    f"positions import saved --yes {OF_PLACE} {LEASES}": [],
    f"dead-letters list {LETTERS.format(scheme='sqlite', place='{place}')}": [],
    f"dead-letters list {LETTERS.format(scheme='jsonl', place='{place}')}": ["empty"],
    f"dead-letters replay --all --observer=log "
    f"{LETTERS.format(scheme='jsonl', place='{place}')}": ["empty"],
    f"dead-letters discard --all {LETTERS.format(scheme='jsonl', place='{place}')}": ["empty"],
    f"dead-letters discard --all {LETTERS.format(scheme='sqlite', place='{place}')}": [],
    f"dead-letters park {RANGE} k {IN_PLACE}": [],
    f"dead-letters release {RANGE} k {IN_PLACE}": [],
    f"doctor --watch=0 --feed=eventlog:log {IN_PLACE}": ["empty"],
    f"doctor --watch=0 {OF_PLACE} {LEASES}": [],
    "config host {place}": [],
    "config broker {place}": [],
    "config pipeline {place}": [],
    "produce {place} lines --key=k": ["folder"],
    "produce log {place} --key=k": ["empty", "read-only"],
    "log create {place}": ["folder"],
    "log status {place}": [],
    f"log split {{place}} {RANGE}": [],
    f"log merge {{place}} {RANGE}": [],
    "log retain {place} --for=1h": [],
    "log compact {place}": [],
    "emulator --port=0 --data={place}": ["folder"],
    "broker --name=a --cluster=file://{home}/{place}": ["folder"],
    "broker --config={place}": [],
    "pipeline run --once --feed=eventlog:{place} --directory=tables": [],
    "pipeline status --feed=eventlog:log --directory={place}": ["folder"],
    "pipeline status --config={place}": [],
    "pipeline schema --feed=eventlog:{place}": [],
}


def test_no_command_is_left_out() -> None:
    known = {*every_command()}
    assert {x for x in known if not any(y.startswith(f"{x} ") for y in WRONG)} == set()


RUN_ALL = """
import hashlib, json, os, pkgutil, sys, tempfile
from importlib import import_module
from pathlib import Path
import changefeed.cli.commands
from changefeed.cli import main

for package in (changefeed.cli, changefeed.cli.commands):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        import_module(module.name)

def tree():
    found = {}
    for folder, folders, files in os.walk("."):
        for name in (*folders, *files):
            path = Path(folder, name)
            try:
                there = hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError as error:
                there = type(error).__name__
            found[str(path)] = there
    return found

def ended(words):
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.argv = ["changefeed", *words.split()]
            main()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        return code, output.read().decode()

for words in json.load(sys.stdin):
    before = tree()
    code, output = ended(words)
    after = tree()
    changed = sorted(x for x in {*before, *after} if before.get(x) != after.get(x))
    print(json.dumps([words, code, output, changed]), flush=True)
"""
"""What a process of Python does that forks for each command: it has the modules already."""


class Ended(NamedTuple):
    words: str
    code: int
    output: str
    changed: list[str]
    """What is there now and was not, or the other way round, or has other bytes."""


def run_all(cases: Sequence[str], home: Path) -> list[Ended]:
    """Run commands one after the other in one process that is bound by the rights of files."""
    unprivileged = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"]
    command = (*(unprivileged if os.geteuid() == 0 else []), sys.executable, "-c", RUN_ALL)
    done = ended(*command, cwd=home, stdin=json.dumps(cases))
    assert done.returncode == 0, done.stderr[-2000:]
    return [msgspec.json.decode(x, type=Ended) for x in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", PLACES)
async def test_a_wrong_place_is_a_message_and_exit_code_2(kind: str, tmp_path: Path) -> None:
    await make_home(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "locked").touch(mode=0o000)
    (tmp_path / "closed").mkdir(mode=0o000)
    (tmp_path / "copy.db").write_bytes((tmp_path / "leases.db").read_bytes())
    (tmp_path / "copy.db").chmod(0o444)
    cases = [x.format(place=PLACES[kind], home=tmp_path) for x in WRONG if kind not in WRONG[x]]
    try:
        found = run_all(cases, tmp_path)
    finally:
        (tmp_path / "closed").chmod(0o700)
    wrong = [x for x in found if x.code != 2 or "Traceback" in x.output or has_changed(x)]
    assert (len(found), wrong) == (len(cases), [])


def has_changed(ended: Ended) -> bool:
    """Whether it has changed what it may not: a host writes, and doctor tries to."""
    writes = ended.words.startswith(("run ", "doctor "))
    return not all(writes and x.startswith("leases.db") for x in ended.changed)
