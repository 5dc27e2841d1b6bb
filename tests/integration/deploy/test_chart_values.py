"""The values of the chart: nonsense is refused by Helm itself, under the name of the value."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.deploy.test_kubernetes import CHART, ROOT, template

PAGES = [ROOT / "docs/kubernetes.md"]
OF_KUBERNETES = {"livenessProbe", "readinessProbe", "startupProbe", "requests", "limits"}
"""Sections whose names are those of Kubernetes, which knows them better."""
Name = tuple[str, ...]

OUT_OF_RANGE: dict[Name, Any] = {
    ("image", "repository"): "Registry.example/shop:1 ",
    ("image", "tag"): "a/b",
    ("image", "pullPolicy"): "Sometimes",
    ("replicas",): -1,
    ("config",): "",
    ("secretFiles", "variables", "KEY"): "../key",
    ("env",): [{"name": "PORT", "value": 5}],
    ("extraArgs",): [["--set"]],
    ("serviceAccount", "name"): "My Account",
    ("podLabels", "team"): 7,
    ("resources", "requests", "cpu"): "a lot",
    ("terminationGracePeriodSeconds",): 0,
    ("port",): 80800,
    ("livenessProbe", "periodSeconds"): 0,
    ("podDisruptionBudget", "maxUnavailable"): "half",
    ("serviceMonitor", "interval"): "often",
    ("monitor", "lagPerHost"): 0,
    ("keda", "maxReplicas"): 0,
    ("keda", "pollingInterval"): 1.5,
    ("keda", "triggers"): [{"type": "cpu"}],
    ("brokers", "cluster"): "file:///cluster",
    ("brokers", "port"): 0,
    ("brokers", "tokenSecret"): "my token",
    ("volumeMounts",): [{"name": "cache", "mountPath": "cache"}],
}
MISSING = [
    ("keda",),
    ("image", "repository"),
    ("monitor", "lagPerHost"),
    ("brokers", "port"),
    ("brokers", "serviceAccount"),
]


def defaults() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def refused(given: Mapping[str, Any], folder: Path) -> str:
    """Return what Helm says of values that it does not take."""
    (file := folder / "values.json").write_text(json.dumps(given))
    with pytest.raises(AssertionError) as error:
        template("shop", "--values", file)
    return str(error.value)


def nested(values: Mapping[Name, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for (*sections, name), value in values.items():
        inner = made
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return made


def leaves(values: Mapping[str, Any], path: Name = ()) -> Iterator[tuple[Name, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value and name != "httpGet":
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def sections(values: Mapping[str, Any], path: Name = ()) -> Iterator[Name]:
    yield path
    for name, value in values.items():
        if isinstance(value, dict) and value and name not in OF_KUBERNETES:
            yield from sections(value, (*path, name))


def test_a_value_of_another_kind_is_refused_by_its_name(tmp_path: Path) -> None:
    wrong: dict[Name, Any] = {
        x: 5 if isinstance(y, dict) else {"x": {}} for x, y in leaves(defaults())
    }
    said = refused(nested(wrong), tmp_path)
    assert [x for x in wrong if f"at '/{'/'.join(x)}'" not in said] == []


def test_a_value_out_of_its_range_is_refused_by_its_name(tmp_path: Path) -> None:
    said = refused(nested(OUT_OF_RANGE), tmp_path)
    assert [x for x in OUT_OF_RANGE if f"at '/{'/'.join(x)}" not in said] == []


def test_a_name_that_is_no_value_is_refused_in_each_section(tmp_path: Path) -> None:
    unknown = {(*x, "replica"): 1 for x in sections(defaults())}
    said = refused(nested(unknown), tmp_path)
    refusals = re.findall(r"at '/?([^']*)': additional properties 'replica' not allowed", said)
    assert {*refusals} == {"/".join(x) for x in sections(defaults())}


@pytest.mark.parametrize("path", MISSING, ids=".".join)
def test_a_value_that_the_chart_cannot_do_without_is_asked_for(
    path: Name, tmp_path: Path
) -> None:
    assert f"missing property '{path[-1]}'" in refused(nested({path: None}), tmp_path)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"secretFiles": {"variables": {"KEY_FILE": "key"}}}, "/secretFiles/secretName"),
        (
            {"monitor": {"enabled": True}, "keda": {"enabled": True, "minReplicas": 13}},
            "keda.minReplicas",
        ),
    ],
)
def test_values_that_do_not_fit_each_other_are_refused(
    given: dict[str, Any], named: str, tmp_path: Path
) -> None:
    assert named in refused(given, tmp_path)


def documented() -> Iterator[dict[str, Any]]:
    for page in PAGES:
        text = page.read_text()
        yield from map(
            yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        )


@pytest.mark.parametrize("given", [*documented()], ids="+".join)
def test_the_values_of_the_documentation_are_taken(
    given: dict[str, Any], tmp_path: Path
) -> None:
    (file := tmp_path / "values.json").write_text(json.dumps(given))
    assert "kind: StatefulSet" in template("shop", "--values", file)
