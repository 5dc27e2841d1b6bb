"""Java, Node and Go over https, with the emulator's certificate made known as the page says."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cosmos_emulator import DEVELOPMENT_KEY
from emulator.tests.clients.programs import java, lines_of, node
from emulator.tests.process import process

pytestmark = pytest.mark.nightly
_SECONDS = 60.0


async def test_node_takes_the_certificate_as_an_extra_authority(tmp_path: Path) -> None:
    program = node("ping.js")
    async with process(tmp_path, "--tls", "--data=data") as (_, url):
        where = {"COSMOS_ENDPOINT": url, "COSMOS_KEY": DEVELOPMENT_KEY}
        where["NODE_EXTRA_CA_CERTS"] = str(tmp_path / "data" / "emulator.pem")
        assert await lines_of(program, where, _SECONDS) == [{"databases": 0}]


async def test_java_takes_the_certificate_from_a_truststore(tmp_path: Path) -> None:
    program = java("Ping")
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed: apt-get install curl")
    async with process(tmp_path, "--tls", "--data=data") as (_, url):
        for command in (
            ["curl", "-sk", f"{url}_explorer/emulator.pem", "-o", "emulator.crt"],
            [
                *("keytool", "-importcert", "-noprompt", "-alias", "emulator"),
                *("-file", "emulator.crt", "-keystore", "emulator.jks"),
                *("-storepass", "changeit"),
            ],
        ):
            await asyncio.to_thread(subprocess.run, command, cwd=tmp_path, check=True)
        store = f"-Djavax.net.ssl.trustStore={tmp_path / 'emulator.jks'}"
        program = [
            program[0],
            store,
            "-Djavax.net.ssl.trustStorePassword=changeit",
            *program[1:],
        ]
        where = {"COSMOS_ENDPOINT": url, "COSMOS_KEY": DEVELOPMENT_KEY}
        assert await lines_of(program, where, _SECONDS) == [{"databases": 0}]


GO_PROGRAM = """
package main

import ("fmt"; "net/http"; "os")

func main() {
	answer, err := http.Get(os.Args[1])
	if err != nil { fmt.Println(err); os.Exit(1) }
	fmt.Println(answer.StatusCode)
}
"""


async def test_go_takes_the_certificate_from_the_environment(tmp_path: Path) -> None:
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        pytest.skip("Go is not installed: apt-get install golang")
    (tmp_path / "ping.go").write_text(GO_PROGRAM)

    async def answers(url: str, **more: str) -> bool:
        program = [go, "run", "ping.go", f"{url}ready"]
        where = dict(os.environ, **more)
        done = await asyncio.to_thread(
            subprocess.run, program, cwd=tmp_path, env=where, capture_output=True, check=False
        )
        return done.stdout.strip() == b"200"

    async with process(tmp_path, "--tls", "--data=data") as (_, url):
        trusted = str(tmp_path / "data" / "emulator.pem")
        assert await answers(url, SSL_CERT_FILE=trusted)
        assert not await answers(url)
