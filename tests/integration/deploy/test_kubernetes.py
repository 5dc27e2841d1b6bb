"""What the chart makes: against the schemas of Kubernetes, and as its pages say."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from changefeed.host.settings import load_settings
from changefeed.log.brokers.settings import BrokerSettings, load_broker_settings
from changefeed.runtime.settings_schema import names
from tests.support.processes import ended, python
from tests.support.promtool import RULES

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy/helm/changefeed"
PLAIN = Path("plain.yaml")
"""Stands for what the chart makes with its default values: ``plain`` renders it."""
EVERYTHING = Path("everything.yaml")
"""Stands for what the chart makes with all of its values: ``everything`` renders it."""
KEDA = sorted((ROOT / "deploy/keda").glob("*.yaml"))
VERSIONS = ("1.28", kubernetes_validate.latest_version())
OF_OPERATORS = {"ServiceMonitor", "PrometheusRule", "ScaledObject"}


def helm(*arguments: str | Path) -> str:
    """Run it; skip the test where it is missing."""
    tool = os.environ.get("TEST_HELM") or shutil.which("helm")
    if tool is None:
        pytest.skip(
            "Helm is not installed: GOBIN=/usr/bin go install helm.sh/helm/v3/cmd/helm@latest"
        )
    done = ended(tool, *arguments, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def template(name: str, *arguments: str | Path) -> str:
    return helm("template", name, CHART, "--kube-version", "1.31", *arguments)


@cache
def plain() -> str:
    return template("changefeed", "--namespace", "changefeed")


@cache
def everything() -> str:
    values = CHART / "ci/everything-values.yaml"
    return template("shop", "--namespace", "shop", "--values", values)


def text_of(file: Path) -> str:
    made = {PLAIN: plain, EVERYTHING: everything}
    return made[file]() if file in made else file.read_text()


def documents(file: Path) -> list[dict[str, Any]]:
    return [x for x in yaml.safe_load_all(text_of(file)) if x is not None]


def of_kind(kind: str, file: Path = EVERYTHING) -> dict[str, Any]:
    return next(x for x in documents(file) if x["kind"] == kind)


def fleet(file: Path = EVERYTHING) -> dict[str, Any]:
    """Return the StatefulSet of hosts."""
    hosts = {"app.kubernetes.io/component": "hosts"}.items()
    sets = (x for x in documents(file) if x["kind"] == "StatefulSet")
    return next(x for x in sets if hosts <= x["metadata"]["labels"].items())


def pods(file: Path) -> Iterator[dict[str, Any]]:
    for one in documents(file):
        if one["kind"] in ("StatefulSet", "Deployment"):
            yield one["spec"]["template"]["spec"]


def broker(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pod of brokers, and the container in it."""
    (pod,) = (x for x in pods(file) if x["containers"][0]["name"] == "broker")
    return pod, pod["containers"][0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", [PLAIN, EVERYTHING], ids=lambda x: x.stem)
def test_manifests_fit_the_schemas_of_kubernetes(file: Path, version: str) -> None:
    for one in documents(file):
        if one["kind"] not in OF_OPERATORS:
            kubernetes_validate.validate(one, version, strict=True)


def test_a_chart_that_is_linted_says_nothing_is_wrong() -> None:
    assert "0 chart(s) failed" in helm("lint", CHART)


def test_scaling_without_anything_to_ask_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"keda\.enabled needs monitor\.enabled"):
        template("shop", "--set", "keda.enabled=true")


@pytest.mark.parametrize("file", [PLAIN, EVERYTHING], ids=lambda x: x.stem)
def test_no_pod_is_root_or_may_write_its_image(file: Path) -> None:
    for pod in pods(file):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["capabilities"] == {"drop": ["ALL"]}
            mounted = {x["name"] for x in container["volumeMounts"]}
            assert mounted <= {x["name"] for x in pod["volumes"]}


def test_the_values_of_the_tutorial_make_three_hosts_with_its_settings(tmp_path: Path) -> None:
    page = (ROOT / "docs/kubernetes.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    values = next(x for x in blocks if x.startswith("replicas:"))
    (file := tmp_path / "values.yaml").write_text(values)
    (made := tmp_path / "made.yaml").write_text(
        template("changefeed", "--namespace", "shop", "--values", file)
    )
    assert of_kind("StatefulSet", made)["spec"]["replicas"] == 3
    (config,) = of_kind("ConfigMap", made)["data"].values()
    (settings := tmp_path / "changefeed.toml").write_text(config)
    assert load_settings(settings, {}).observer.name == "orders:note"
    hosts, monitor = pods(made)
    assert hosts["containers"][0]["image"] == "registry.example/orders:1"
    assert monitor["containers"][0]["image"] == "registry.example/orders:1"
    observer = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0]
    python(observer, cwd=tmp_path)


COMMANDS = {
    "tutorial": ROOT / "docs/kubernetes.md",
    "notes": CHART / "templates/NOTES.txt",
}


@pytest.mark.parametrize("page", COMMANDS.values(), ids=COMMANDS)
def test_what_a_person_runs_in_a_pod_has_the_settings_of_its_host(
    page: Path, tmp_path: Path
) -> None:
    config = 'leases.address = "sqlite:/nowhere/of-the-chart.db"'
    (made := tmp_path / "made.yaml").write_text(
        template("shop", f"--set-literal=config={config}")
    )
    (config_map,) = of_kind("ConfigMap", made)["data"].items()
    (tmp_path / config_map[0]).write_text(config_map[1])
    (host,) = next(pods(made))["containers"]
    (mounted,) = (x["mountPath"] for x in host["volumeMounts"] if x["name"] == "settings")
    env = {x["name"]: x["value"].replace(mounted, str(tmp_path)) for x in host["env"]}
    (command,) = re.findall(
        r"^ *kubectl .* exec .* -- (changefeed .*)$", page.read_text(), re.MULTILINE
    )
    done = ended(sys.executable, "-m", *command.split(), cwd=ROOT, env=env)
    assert "/nowhere/of-the-chart.db" in done.stderr, done.stderr


def test_hosts_have_the_time_that_their_settings_ask_for() -> None:
    (pod,) = pods(PLAIN)
    settings = load_settings(None, {})
    assert pod["terminationGracePeriodSeconds"] >= settings.host.stop_timeout + 12


def test_the_settings_of_the_manifests_are_settings(tmp_path: Path) -> None:
    file = tmp_path / "changefeed.toml"
    file.write_text(of_kind("ConfigMap", PLAIN)["data"]["changefeed.toml"])
    assert load_settings(file, {}).observer.name == "shop"


def test_probes_ask_what_they_are_for() -> None:
    (host,) = next(pods(PLAIN))["containers"]
    assert host["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert host["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_each_selector_finds_the_pods_that_it_is_for() -> None:
    labels = [
        x["spec"]["template"]["metadata"]["labels"]
        for x in documents(EVERYTHING)
        if x["kind"] in ("StatefulSet", "Deployment")
    ]

    def found(selector: dict[str, str]) -> list[str]:
        return [
            x["app.kubernetes.io/component"] for x in labels if selector.items() <= x.items()
        ]

    services = [x["spec"]["selector"] for x in documents(EVERYTHING) if x["kind"] == "Service"]
    assert sorted(map(found, services)) == [["brokers"], ["hosts"], ["monitor"]]

    def selected(kind: str, selector: str) -> list[list[str]]:
        specs = [x["spec"] for x in documents(EVERYTHING) if x["kind"] == kind]
        return sorted(sorted(found(x[selector]["matchLabels"])) for x in specs)

    assert selected("PodDisruptionBudget", "selector") == [["brokers"], ["hosts"]]
    everyone = ["brokers", "hosts", "monitor"]
    assert selected("NetworkPolicy", "podSelector") == [["brokers"], everyone]


def test_the_pods_of_a_release_reach_each_other_and_others_as_the_values_say() -> None:
    values = yaml.safe_load((CHART / "ci/everything-values.yaml").read_text())
    policies = (x for x in documents(EVERYTHING) if x["kind"] == "NetworkPolicy")
    (policy,) = (x["spec"] for x in policies if x["metadata"]["name"] == "shop")
    own = {"podSelector": policy["podSelector"]}
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "http"}]
    assert rule["from"] == [own, *values["networkPolicy"]["from"]]
    assert policy["egress"] == [{"to": [own]}, *values["networkPolicy"]["egress"]]


def test_the_operators_of_prometheus_get_our_alerts_and_our_ports() -> None:
    assert of_kind("PrometheusRule")["spec"] == yaml.safe_load(RULES.read_text())
    monitor = of_kind("ServiceMonitor")
    services = [x for x in documents(EVERYTHING) if x["kind"] == "Service"]
    for service in services:
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        assert wanted <= service["metadata"]["labels"].items()
        assert [x["name"] for x in service["spec"]["ports"]] == ["http"]
    assert [x["port"] for x in monitor["spec"]["endpoints"]] == ["http"]


@pytest.mark.parametrize("file", [*KEDA, EVERYTHING], ids=lambda x: x.stem)
def test_what_is_scaled_is_the_fleet_and_triggers_have_what_they_need(file: Path) -> None:
    required = {
        "prometheus": {"serverAddress", "query", "threshold"},
        "metrics-api": {"url", "valueLocation", "targetValue"},
        "azure-cosmosdb": {
            "connectionFromEnv",
            "databaseId",
            "containerId",
            "leaseDatabaseId",
            "leaseContainerId",
            "processorName",
        },
    }
    scaled = of_kind("ScaledObject", file)
    hosts = fleet(EVERYTHING if file == EVERYTHING else PLAIN)
    assert scaled["spec"]["scaleTargetRef"]["name"] == hosts["metadata"]["name"]
    assert scaled["spec"]["scaleTargetRef"]["kind"] == "StatefulSet"
    for trigger in scaled["spec"]["triggers"]:
        assert required[trigger["type"]] <= trigger["metadata"].keys()
        assert all(isinstance(x, str) for x in trigger["metadata"].values())


def test_a_fleet_that_is_scaled_leaves_its_size_to_keda() -> None:
    assert "replicas" not in fleet()["spec"]


def test_brokers_are_given_settings_that_there_are_and_reach_each_other_by_name() -> None:
    pod, container = broker(EVERYTHING)
    env = {x["name"]: x.get("value", "") for x in container["env"]}
    prefix = "CHANGEFEED_BROKER__"
    given = {x.removeprefix(prefix): env[x] for x in env if x.startswith(prefix)}
    known = {"__".join(x).upper() for x in names(BrokerSettings)}
    assert given.keys() <= known
    (service,) = (
        x["spec"]["serviceName"]
        for x in documents(EVERYTHING)
        if x["kind"] == "StatefulSet" and x["spec"]["template"]["spec"] == pod
    )
    services = {x["metadata"]["name"] for x in documents(EVERYTHING) if x["kind"] == "Service"}
    assert service in services
    (port,) = (x["containerPort"] for x in container["ports"])
    assert given["WEB__ADVERTISE"] == f"$(POD).{service}:{port}"
    assert given["WEB__PORT"] == str(port)
    folder = container["volumeMounts"][0]["mountPath"]
    assert given["WEB__TOKEN_FILE"].startswith(f"{folder}/")


def test_brokers_have_the_time_to_hand_over_and_probes_that_ask_what_they_are_for() -> None:
    pod, container = broker(EVERYTHING)
    settings = load_broker_settings(None, {"broker": {"cluster": "az://container/x"}})
    assert pod["terminationGracePeriodSeconds"] >= settings.broker.stop_timeout + 12
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_chart_runs_no_brokers_unless_it_is_asked_to() -> None:
    assert "broker" not in plain()


@pytest.mark.parametrize("missing", ["cluster", "tokenSecret"])
def test_brokers_without_a_store_or_a_token_are_refused(missing: str) -> None:
    given = {"cluster": "az://container/x", "tokenSecret": "token", missing: ""}
    values = [f"--set=brokers.{k}={v}" for k, v in given.items()]
    with pytest.raises(AssertionError, match=rf"brokers\.enabled needs brokers\.{missing}"):
        template("shop", "--set=brokers.enabled=true", *values)
