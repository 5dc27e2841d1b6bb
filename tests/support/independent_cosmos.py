"""An endpoint that speaks the protocol of Cosmos DB and is not ours: npm's
``@vercel/cosmosdb-server``.

It is installed once, into the cache folder of the user, and started once for each test
process, on this machine only. Where npm is missing, or cannot reach its registry, the
tests that want it are skipped. It answers 500 when it is asked to read an item that is
not there; the script that starts it makes that 404, and changes nothing else.
"""

import asyncio
import atexit
import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_PACKAGE = "@vercel/cosmosdb-server@1.0.1"
_SECONDS_TO_INSTALL = 180
_SERVE = """
const { createHttpServer } = require("@vercel/cosmosdb-server");
const server = createHttpServer();
const [handle] = server.listeners("request");
server.removeAllListeners("request");
server.on("request", (request, response) => {
  const end = response.end.bind(response);
  response.end = (body) => {
    const reads = request.method === "GET" && /\\/docs\\/./.test(request.url);
    if (reads && response.statusCode === 500) {
      response.statusCode = 404;
    }
    end(body);
  };
  handle(request, response);
});
console.error = () => {};
process.stdin.on("end", () => process.exit()).resume();
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"""

_started: list[str] = []


async def independent_cosmos() -> str:
    """Return the URL of the endpoint; skip the test if there can be none."""
    if not _started:
        _started.append(await asyncio.to_thread(_start))
    return _started[0]


def _start() -> str:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("npm is not installed: apt-get install npm")
    folder = _installed(npm)
    process = subprocess.Popen(
        [node, "-e", _SERVE], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(_end, process)
    assert process.stdout is not None
    return f"http://127.0.0.1:{process.stdout.readline().decode().strip()}/"


def _end(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()  # which ends it; it would also end with this process
    process.wait()
    process.stdout.close()


def _installed(npm: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "changefeed-host-tests" / _PACKAGE.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes run side by side
        if not (folder / "installed").exists():
            done = subprocess.run(
                [npm, "install", "--no-audit", "--no-fund", "--silent", _PACKAGE],
                cwd=folder,
                capture_output=True,
                timeout=_SECONDS_TO_INSTALL,
                check=False,
            )
            if done.returncode != 0:
                pytest.skip(f"npm could not install {_PACKAGE}: {done.stderr.decode()[-200:]}")
            (folder / "installed").touch()
    return folder
