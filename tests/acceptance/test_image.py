"""The image, made by the lines of its Dockerfile in a folder, without an engine."""

import json
import os
import re
import shutil
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import changefeed
from tests.support import image
from tests.support.commands import QUICK, a_log_of
from tests.support.processes import beside, ended, until

CONTAINERS = (image.ROOT / "docs/kubernetes.md").read_text()


@pytest.fixture(scope="module")
def opt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image.build(tmp_path_factory.mktemp("image"))


def distributions(opt: Path) -> dict[str, str]:
    """Return the packages that are installed, with their versions, by their folders' names."""
    folders = opt.glob("lib/python3.*/site-packages/*.dist-info")
    found = (x.name.removesuffix(".dist-info").rpartition("-") for x in folders)
    return {name.lower().replace("_", "-"): number for name, _, number in found}


def a_line(instruction: str) -> str:
    """Return what an instruction of the last stage says, which has it once."""
    (found,) = [
        x.text for x in image.dockerfile() if (x.stage, x.instruction) == (1, instruction)
    ]
    return found


def test_it_has_what_hosts_need_at_the_versions_that_are_tested_and_no_installer(
    opt: Path,
) -> None:
    installed = distributions(opt)
    pinned = (image.ROOT / "requirements.txt").read_text()
    for name, number in installed.items():
        assert name == "changefeed-host" or f"{name}=={number} " in pinned
    assert {
        "azure-cosmos",
        "asyncpg",
        "obstore",
        "pyarrow",
        "redis",
    } <= installed.keys()
    assert installed.keys().isdisjoint({"pip", "setuptools", "uv", "pytest", "cyclonedx-bom"})
    assert [x.name for x in (opt / "bin").iterdir() if "pip" in x.name] == []


def test_the_bill_of_materials_lists_all_that_is_installed_with_its_licence(opt: Path) -> None:
    bill: dict[str, Any] = json.loads((opt / "sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    listed = {
        x["name"].lower().replace("_", "-").replace(".", "-"): x for x in bill["components"]
    }
    installed = {x.replace(".", "-"): number for x, number in distributions(opt).items()}
    assert {x: one["version"] for x, one in listed.items()} == installed
    assert all(x["purl"].startswith("pkg:pypi/") for x in listed.values() if "purl" in x)
    assert sum("licenses" in x for x in listed.values()) > 0.8 * len(listed)


def test_docs_tell_its_size(opt: Path) -> None:
    (told,) = re.findall(r"\*\*(\d+) MB\*\*", CONTAINERS)
    assert image.size(opt) / 1e6 == pytest.approx(int(told), rel=0.15)


def test_its_entry_point_serves_a_host_that_its_health_check_finds_alive(
    opt: Path, tmp_path: Path
) -> None:
    a_log_of(10, tmp_path)
    (tmp_path / "data").mkdir()
    shutil.move(tmp_path / "log", tmp_path / "data/log")
    (entry,) = json.loads(a_line("ENTRYPOINT"))
    settings = dict(re.findall(r"(CHANGEFEED_\w+)=(\S+)", a_line("ENV")))
    env = {"PATH": f"{opt / 'bin'}:{os.environ['PATH']}", **settings}
    env |= {"CHANGEFEED_WEB__PORT": "0", "HOSTNAME": "x"}
    log = tmp_path / "said"
    program = (opt / "bin" / entry, "run", "--observer=count", *QUICK)
    with beside(*program, cwd=tmp_path, said=log, env=env) as host:
        until(lambda: '"members": [' in log.read_text(), host, log)
        (port,) = re.findall(r'"address": "http://[^"]*:(\d+)"', log.read_text())
        (check,) = re.findall(r"CMD (\[.*\])", a_line("HEALTHCHECK"))
        asks, *rest = json.loads(check)
        there = {**env, "CHANGEFEED_WEB__PORT": port}
        asked = ended(opt / "bin" / asks, *rest, cwd=tmp_path, env=there)
        assert asked.returncode == 0, asked.stderr
        assert (tmp_path / "data/leases.db").exists(), "the default settings lead to /data"
        host.send_signal(signal.SIGTERM)
        assert host.wait(20) == 0
        assert ended(opt / "bin" / asks, *rest, cwd=tmp_path, env=there).returncode == 1


def test_without_a_command_it_says_what_it_can_do(opt: Path, tmp_path: Path) -> None:
    path = {"PATH": str(opt / "bin")}
    told = ended(opt / "bin/changefeed", *json.loads(a_line("CMD")), cwd=tmp_path, env=path)
    assert (told.returncode, "monitor" in told.stdout) == (0, True), told.stderr


def test_the_tool_that_builds_is_of_the_pinned_version() -> None:
    install, _ = image.run_lines(0)
    (wanted,) = re.findall(r'"uv==\$\((.*)\)"', install)
    found = ended("/bin/sh", "-c", wanted, cwd=image.ROOT)
    assert found.stdout.strip() == version("uv")


def test_the_base_loses_its_installer_and_what_would_bring_it_back(tmp_path: Path) -> None:
    local = tmp_path / "usr/local"
    made = ended(sys.executable, "-m", "venv", local, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    packages = next(local.glob("lib/python3.*"))
    (packages / "ensurepip").mkdir()
    assert (packages / "site-packages/pip").exists()
    remove, _, _ = image.run_lines(1)
    image.run(remove, tmp_path, tmp_path)
    assert not (packages / "site-packages/pip").exists()
    assert not (packages / "ensurepip").exists()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("useradd"), reason="only root may")
def test_the_user_is_there_and_owns_the_data(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    for name in ("passwd", "group", "shadow", "gshadow"):
        (tmp_path / "etc" / name).touch()
    _, add, own = image.run_lines(1)
    prefixed = add.replace("useradd ", f"useradd --prefix {tmp_path} ")
    image.run(prefixed, tmp_path, tmp_path)
    image.run(own, tmp_path, tmp_path)
    (user,) = (tmp_path / "etc/passwd").read_text().splitlines()
    assert user.split(":")[:3] == ["changefeed", "x", a_line("USER")]
    assert str((tmp_path / "data").stat().st_uid) == a_line("USER")


def test_labels_say_what_it_is_and_what_it_stands_on() -> None:
    labels = dict(
        re.findall(r'org\.opencontainers\.image\.([\w.]+)="([^"]*)"', a_line("LABEL"))
    )
    assert labels["version"] == changefeed.__version__
    assert (labels["licenses"], labels["base.name"]) == ("MIT", "${PYTHON_IMAGE}")
    arguments = [x.text for x in image.dockerfile() if x.instruction == "ARG"]
    assert arguments.count("PYTHON_IMAGE") == 1, "an argument is known in a stage that names it"
    assert arguments[0] == "PYTHON_IMAGE=python:3.13-slim"
    assert {x.text.split()[0] for x in image.dockerfile() if x.instruction == "FROM"} == {
        "${PYTHON_IMAGE}"
    }
