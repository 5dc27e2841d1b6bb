"""The apps for Azure Container Apps, as docs/kubernetes.md has them: we read what they say."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from changefeed.host.endpoints import PATHS
from changefeed.host.settings import load_settings

PAGE = Path(__file__).parents[3] / "docs/kubernetes.md"


def apps() -> list[dict[str, Any]]:
    (block,) = re.findall(
        r"^```yml\n(name: .*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    return [*yaml.safe_load_all(block)]


def test_hosts_and_monitor_are_given_settings_probes_and_a_scaler_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts, monitor = apps()
    template = hosts["properties"]["template"]
    (host,) = template["containers"]
    for x in host["env"]:
        monkeypatch.setenv(x["name"], x["value"])
    settings = load_settings(None, {})
    assert settings.feed.address.endswith("/shop/orders")
    assert settings.leases.address.endswith("/shop/leases")
    assert settings.observer.name == "orders:note"
    assert template["terminationGracePeriodSeconds"] > settings.host.stop_timeout
    assert {x["httpGet"]["path"] for x in host["probes"]} <= {*PATHS}
    (rule,) = template["scale"]["rules"]
    assert rule["custom"]["metadata"]["url"] == f"http://{monitor['name']}/scale"
    assert monitor["properties"]["configuration"]["ingress"]["external"] is False
