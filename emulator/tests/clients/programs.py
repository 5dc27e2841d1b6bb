"""The strangers' programs: built once into the user's cache, and run from there.

Where Maven, npm, Go or Cargo is missing, or cannot reach its registry, the tests are skipped.
Later runs need no network.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

HERE: Final = Path(__file__).parent
GO_CLIENT: Final = "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
_NODE_CLIENT: Final = "@azure/cosmos@4.10.1"
_TOOLS: Final = (
    "langchain-azure-cosmosdb==1.0.1",
    "azure-cosmos-agent-memory==0.3.0b2",
    "testcontainers==4.15.0",
)
_SECONDS_TO_BUILD: Final = 2400  # for KEDA, Go compiles much of Kubernetes and of Azure's SDK


def java(main: str, *arguments: str, module: str = "java") -> list[str]:
    """Return the command that runs a class of a Maven module; skip where it cannot be."""
    folder = _built_java(HERE / module)
    return [
        "java",
        "-DCOSMOS.HTTP_CONNECTION_WITHOUT_TLS_ALLOWED=true",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{folder / 'classes'}:{folder / 'lib'}/*",
        f"strangers.{main}",
        *arguments,
    ]


def java_jars() -> Path:
    """Return where the libraries for Java are; skip where they cannot be had."""
    return _built_java(HERE / "java") / "lib"


def node(program: str, *arguments: str) -> list[str]:
    """Return the command that runs a program of the Node folder; skip where it cannot be."""
    program = str(HERE / "node" / program)
    return ["env", f"NODE_PATH={node_modules()}", "node", program, *arguments]


def node_modules() -> Path:
    """Return where the packages for Node are; skip where they cannot be had."""
    return _installed_node() / "node_modules"


def go(program: str, *arguments: str) -> list[str]:
    """Return the command that runs a program of the Go module; skip where it cannot be."""
    return [str(_built_go() / program), *arguments]


def rust(program: str, *arguments: str) -> list[str]:
    """Return the command that runs a program of the Rust package; skip where it cannot be."""
    plain = "AZURE_COSMOS_CONNECTION_POOL_IS_HTTP2_ALLOWED=false"  # there is no TLS
    return ["env", plain, str(_built_rust() / "target/debug" / program), *arguments]


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"emulator.tests.clients.{module}", *arguments]


def tools(program: str) -> list[str]:
    """Return the command that runs a program beside tools for AI; skip where it cannot be."""
    folder = cache() / "-".join(["strangers", *_TOOLS])
    steps = f"{sys.executable} -m venv venv && venv/bin/pip install -q {' '.join(_TOOLS)}"
    made_once(folder, ["sh", "-c", steps], f"pip could not install {', '.join(_TOOLS)}")
    return [str(folder / "venv/bin/python"), str(HERE / program)]


async def lines_of(
    command: Sequence[str], environment: Mapping[str, str], seconds: float
) -> list[dict[str, Any]]:
    """Run a program to its end, and return the lines of JSON that it printed."""
    async with started(command, environment) as process:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
        assert process.returncode == 0, err.decode()[-2000:]
    return [json.loads(x) for x in out.splitlines() if x.startswith(b"{")]


@asynccontextmanager
async def started(
    command: Sequence[str], environment: Mapping[str, str]
) -> AsyncIterator[Process]:
    """Run a program, which does not outlive the block."""
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **environment}, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def _built_java(module: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        pytest.skip("Maven is not installed: apt-get install maven")
    sources = (x for x in module.rglob("*") if x.suffix in {".java", ".xml"})
    folder = cache() / f"strangers-{module.name}-{digest(sources)}"
    command = [
        maven,
        "--quiet",
        "--batch-mode",
        f"--file={module / 'pom.xml'}",
        f"-Dtarget={folder}",
        "compile",
        "dependency:copy-dependencies",
        f"-DoutputDirectory={folder / 'lib'}",
    ]
    return made_once(folder, command, "Maven could not build the module for Java")


def _built_go() -> Path:
    compiler = shutil.which("go")
    if compiler is None:
        pytest.skip("Go is not installed: apt-get install golang")
    module = HERE / "go"
    folder = cache() / f"strangers-go-{digest(x for x in module.rglob('*') if x.is_file())}"
    counted = ["-cover", f"-coverpkg=./...,{GO_CLIENT}"]  # what was called, in GOCOVERDIR
    command = [compiler, f"-C={module}", "build", *counted, f"-o={folder}/", "./..."]
    return made_once(folder, command, "Go could not build the module")


def _built_rust() -> Path:
    if shutil.which("cargo") is None:
        pytest.skip("Cargo is not installed: apt-get install cargo")
    package = HERE / "rust"
    folder = cache() / f"strangers-rust-{digest(x for x in package.rglob('*') if x.is_file())}"
    build = "cargo build --manifest-path source/Cargo.toml --target-dir target --jobs 2"
    steps = f"cp -R {package}/. source\nCARGO_PROFILE_DEV_DEBUG=0 {build}"
    return made_once(folder, ["sh", "-ec", steps], "Cargo could not build the package")


def _installed_node() -> Path:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("npm is not installed: apt-get install npm")
    folder = cache() / f"strangers-node-{_NODE_CLIENT.replace('/', '-')}"
    command = [npm, "install", "--no-audit", "--no-fund", "--silent", _NODE_CLIENT]
    return made_once(folder, command, f"npm could not install {_NODE_CLIENT}")


def made_once(folder: Path, command: Sequence[str], failure: str) -> Path:
    """Run a command in a folder, once; skip the test if it does not work."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes run side by side
        if not (folder / "made").exists():
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                timeout=_SECONDS_TO_BUILD,
                check=False,
            )
            if done.returncode != 0:
                said = (done.stdout + done.stderr).decode()
                if "COMPILATION ERROR" in said:
                    pytest.fail(said[-3000:])
                pytest.skip(f"{failure}: {said[-300:]}")
            (folder / "made").touch()
    return folder


def digest(sources: Iterable[Path]) -> str:
    """Name sources by what they say."""
    texts = b"".join(x.read_bytes() for x in sorted(sources))
    return hashlib.sha256(texts).hexdigest()[:16]


def cache() -> Path:
    """Return where programs are kept."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "cosmos-emulator-tests"
