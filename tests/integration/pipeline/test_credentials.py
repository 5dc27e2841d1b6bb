"""Every way to open an account of Cosmos DB, and what is said of its secret: nothing."""

import base64
import json
import os
import sys
import time
from pathlib import Path

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from trustme import CA, KeyType

from cosmos_emulator.settings import EmulatorSettings
from cosmos_emulator.testing import account_in_thread
from tests.support.processes import PATIENCE, ended

# Of urllib3, on the certificate of the emulator.
pytestmark = pytest.mark.filterwarnings("default")

ROOT = Path(__file__).parents[3]
KEY = base64.b64encode(b"a key that nobody may ever see printed anywhere").decode()
OTHER = base64.b64encode(b"a key that opens nothing and is as secret").decode()
SECRET = "the-secret-of-a-service-principal"
PRINCIPAL = {"tenantId": "11111111-1111-1111-1111-111111111111", "clientId": "a-client"}


def token(key: str) -> str:
    """Return the token of Entra ID that emulators take."""
    claims = {"aud": "https://localhost.localhost", "nbf": 0, "exp": int(time.time()) + 3600}
    parts = b'{"typ":"JWT","alg":"RS256"}', json.dumps(claims).encode(), key.encode()
    return ".".join(base64.urlsafe_b64encode(x).decode().rstrip("=") for x in parts)


def make_container(url: str) -> None:
    database = CosmosClient(url, KEY).create_database("d")
    items = database.create_container("c", PartitionKey("/pk"))
    for n in range(3):
        items.create_item({"id": f"i{n}", "pk": "p"})


def certificate() -> str:
    made = CA(key_type=KeyType.RSA).issue_cert("client.example", key_type=KeyType.RSA)
    return made.private_key_and_cert_chain_pem.bytes().decode()


def test_a_secret_opens_an_account_and_is_in_nothing_that_is_printed(tmp_path: Path) -> None:
    pem = certificate()
    with account_in_thread(EmulatorSettings(port=0, key=KEY, tls=True)) as account:
        make_container(account.url)
        string = f"AccountEndpoint={account.url};AccountKey="
        right = {
            "key": {"accessKey": KEY},
            "connection string": {"accessKey": string + KEY},
            "token": {"token": token(KEY)},
        }
        wrong = {
            "other key": {"accessKey": OTHER},
            "secret": {**PRINCIPAL, "clientSecret": SECRET},
            "certificate": {**PRINCIPAL, "secretCertificate": pem},
        }
        feed = account.url.replace("https:", "cosmos:") + "d/c"
        ways = {x: {"feed": feed, **y} for x, y in {**right, **wrong}.items()}
        done = ended(
            sys.executable,
            *("-m", "tests.support.credential_program", tmp_path),
            cwd=ROOT,
            env={**os.environ, "AZURE_AUTHORITY_HOST": "https://127.0.0.1:9"},
            stdin=json.dumps(ways),
            patience=2 * PATIENCE,
        )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-5000:]
    outcomes = [x for x in done.stdout.splitlines() if x.startswith(("rows:", "failed:"))]
    assert [x[:7] for x in outcomes] == ["rows: 3"] * 9 + ["failed:"] * 3, said[-5000:]
    assert all(x in said for x in ("SparkListenerApplicationEnd", "accessKey", "a-client"))
    secrets = [KEY, OTHER, token(KEY).split(".")[2], SECRET]
    lines = [x for x in pem.splitlines() if not x.startswith("-")]
    assert not [x for x in (*secrets, *lines) if x in said]
