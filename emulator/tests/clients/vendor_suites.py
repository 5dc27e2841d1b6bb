"""The vendors' own tests of their clients, as registries ship them, run against an emulator.

The suites know the port of Microsoft's emulator by heart, so a copy of each is told another.
What they need is fetched once, into the user's cache.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from emulator.tests.clients.programs import GO_CLIENT, cache, made_once

_PYTHON: Final = "4.17.1"
_RUST: Final = "1.0.0"
_GO: Final = "v1.5.0"
_KNOWN_BY_HEART: Final = ("localhost:8081", "127.0.0.1:8081", "localhost:8903")
_SOURCES: Final = (".py", ".go", ".mod", ".sum", ".rs")
_SECONDS: Final = 3000
_MARKS: Final = "cosmosEmulator or cosmosQuery or cosmosSearchQuery"
_SUITE: Final = f"azure-cosmos=={_PYTHON}"
_PACKAGES: Final = (
    f"{_SUITE} aiohttp azure-identity packaging pytest pytest-asyncio "
    "pytest-timeout requests setuptools wheel"
)
_RUST_MANIFEST: Final = f"""[package]
name = "suite"
version = "0.0.0"
edition = "2021"

[dependencies]
azure_data_cosmos = "={_RUST}"

[lib]
path = "none.rs"
"""
_RUST_FEATURES: Final = "key_auth,control_plane,fault_injection,unstable_patch"
_WHOLE: Final = re.MULTILINE | re.DOTALL
_OF_MICROSOFT: Final = {
    "azure_recorded_testcase.py": "def get_credential(**_):\n    raise NotImplementedError\n",
    "helpers.py": "def is_live():\n    return True\n",
    "__init__.py": "",
}
"""``devtools_testutils``, which is in no registry: what the suite takes from it."""

Results = Mapping[str, str]
"""Why a test has failed, or "" if it passed, by its name. Skipped tests are left out."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """``fetch`` returns the folder of the suite; ``run`` runs a copy of it.

    ``options`` start the emulator as the suite knows Microsoft's.
    """

    fetch: Callable[[], Path]
    run: Callable[[Path, Path], Results]
    options: tuple[str, ...] = ()


def results_of(suite: Suite, port: int, certificate: Path, folder: Path) -> Results:
    """Run a suite against what listens on ``port`` of localhost, in a copy below ``folder``."""
    copy = folder / "suite"
    shutil.copytree(suite.fetch(), copy)
    for file in _sources(copy):
        file.chmod(0o644)
        text = file.read_text("utf-8")
        for known in _KNOWN_BY_HEART:
            text = text.replace(known, f"{known.partition(':')[0]}:{port}")
        file.write_text(text, "utf-8")
    return suite.run(copy, certificate)


def _sources(folder: Path) -> Iterator[Path]:
    for here, _, names in os.walk(folder):
        Path(here).chmod(0o755)
        yield from (Path(here) / x for x in names if x.endswith(_SOURCES))


def _python_folder() -> Path:
    return cache() / f"suite-python-{_PYTHON}"


def _fetched_python() -> Path:
    steps = (
        f"{sys.executable} -m venv venv",
        f"venv/bin/pip install -q {_PACKAGES}",
        f"venv/bin/pip download -q --no-deps --no-build-isolation --no-binary=:all: {_SUITE}",
        "tar xzf azure_cosmos-*.tar.gz",
    )
    command = ["sh", "-ec", "\n".join(steps)]
    made_once(_python_folder(), command, "the suite of azure-cosmos for Python cannot be had")
    return _python_folder() / f"azure_cosmos-{_PYTHON}" / "tests"


def _ran_python(copy: Path, _: Path) -> Results:
    stand_in = copy / "devtools_testutils"
    stand_in.mkdir()
    for name, text in _OF_MICROSOFT.items():
        (stand_in / name).write_text(text)
    report = copy / "report.xml"
    command = [_python_folder() / "venv/bin/python", "-m", "pytest", "-q", "-m", _MARKS]
    options = ["-o", "asyncio_mode=auto", "--timeout=180", "--tb=no", f"--junitxml={report}"]
    said = _run([*map(str, command), *options], copy, {})
    assert report.exists(), said
    found: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        if case.find("skipped") is None:  # some modules import the tests of others
            why = [str(x.attrib) for x in case if x.tag in {"failure", "error"}]
            found[name] = found.get(name, "") + "".join(why)
    return found


def _fetched_go() -> Path:
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: apt-get install golang")
    folder = cache() / f"suite-go-{_GO}"
    fetch = f"go mod download -json {GO_CLIENT}@{_GO} > module.json"
    made_once(folder, ["sh", "-ec", fetch], f"Go could not fetch {GO_CLIENT}")
    return Path(json.loads((folder / "module.json").read_text())["Dir"])


def _ran_go(copy: Path, certificate: Path) -> Results:
    tests = [
        line.split("(")[0].removeprefix("func ")
        for file in sorted(copy.glob("emulator_*_test.go"))
        for line in file.read_text().splitlines()
        if line.startswith("func Test")
    ]
    command = ["go", "test", "-json", "-count=1", f"-run=^({'|'.join(tests)})$", "."]
    trusted = {"SSL_CERT_FILE": str(certificate)}
    said = _run(command, copy, {"EMULATOR": "true", "GOFLAGS": "-mod=mod", **trusted})
    events = [json.loads(x) for x in said.splitlines() if x.startswith("{")]
    of_tests, said_by = [x for x in events if "Test" in x], defaultdict[str, str](str)
    for event in of_tests:
        said_by[event["Test"]] += event.get("Output", "")
    failed = {x["Test"]: said_by[x["Test"]] for x in of_tests if x["Action"] == "fail"}
    passed = {x["Test"]: "" for x in of_tests if x["Action"] == "pass"}
    assert failed or passed, said[-2000:]
    return passed | failed


def _fetched_rust() -> Path:
    if shutil.which("cargo") is None:
        pytest.skip("Cargo is not installed: apt-get install cargo")
    folder = _rust_folder()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Cargo.toml").write_text(_RUST_MANIFEST)
    fetch = "touch none.rs && cargo metadata --quiet --format-version 1 > metadata.json"
    made_once(folder, ["sh", "-ec", fetch], "Cargo could not fetch azure_data_cosmos")
    packages = json.loads((folder / "metadata.json").read_text())["packages"]
    manifest = next(x["manifest_path"] for x in packages if x["name"] == "azure_data_cosmos")
    return Path(manifest).parent


def _rust_folder() -> Path:
    return cache() / f"suite-rust-{_RUST}"


def _ran_rust(copy: Path, certificate: Path) -> Results:
    command = ["cargo", "test", f"--features={_RUST_FEATURES}", "--test=emulator", "--jobs=2"]
    settings = {
        "AZURE_COSMOS_CONNECTION_STRING": "emulator",
        "CARGO_PROFILE_TEST_DEBUG": "0",
        "CARGO_TARGET_DIR": str(_rust_folder() / "target"),
        "RUSTFLAGS": '--cfg=test_category="emulator"',
        "RUST_BACKTRACE": "0",
    }
    built = _run([*command, "--no-run"], copy, settings)
    trusted = {"SSL_CERT_FILE": str(certificate)}  # from now on: Cargo asks its registry before
    said = _run([*command, "--", "--test-threads=4"], copy, settings | trusted)
    ended = re.findall(r"^test (\S+) \.\.\. (ok|FAILED)$", said, re.MULTILINE)
    assert ended, built + said[-2000:]
    why = dict(re.findall(r"^---- (\S+) stdout ----\n(.*?)(?=^----|^failures:)", said, _WHOLE))
    return {x: "" if result == "ok" else why.get(x, result) for x, result in ended}


def _run(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,  # tests that fail are its result
    )
    return done.stdout + done.stderr[-2000:]


SUITES: Final = {
    "python": Suite(fetch=_fetched_python, run=_ran_python),
    "go": Suite(fetch=_fetched_go, run=_ran_go, options=("--consistency=Strong",)),
    "rust": Suite(fetch=_fetched_rust, run=_ran_rust),
}
