"""The site's version of KFP: what it refuses, and what a later KFP carries.

Tests gpuflow/targets/kubeflow/facts.py.
"""

from __future__ import annotations

import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import gpuflow
from gpuflow import kubeflow
from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.targets.capabilities import NoSupport, PartialSupport
from gpuflow.targets.kubeflow.facts import capabilities_at
from tests.targets.kubeflow.compiling import compiled, documents
from tests.targets.kubeflow.test_caching import notes_of
from tests.targets.kubeflow.test_installation import site

SOURCE = """
name: helped
steps:
  serve:
    image: i:1
    command: [serve]
    volumes: {/data: {claim: datasets}, /tmp/x: {empty_dir: 1Gi}, /conf: {config_map: settings}}
    init_containers:
      - name: fetch
        image: fetch:1
        command: [fetch, "a {{b}} $(HOME)"]
        env: {MODE: fast}
        volumes: {/data: {claim: datasets}, /tmp/x: {empty_dir: 1Gi}, /conf: {config_map: settings}}
        cpu: 100m
        memory: 64Mi
    sidecars:
      - {name: cache, image: "cache:1", command: [cache]}
"""


@pytest.mark.parametrize("version", ["2.18", "v2.18.0", "2.18.0-rc.1", "3.0"])
def test_a_later_kfp_carries_init_containers_and_sidecars(version: str) -> None:
    _, platform = documents(SOURCE, site=site(version=version))
    config = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-serve"]
    assert config["initContainers"] == [
        {
            "command": ["fetch", "a {$$(GPUFLOW_BRACE)b}} $$$$(HOME)"],
            "env": [{"name": "GPUFLOW_BRACE", "value": "{"}, {"name": "MODE", "value": "fast"}],
            "image": "fetch:1",
            "name": "fetch",
            "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}},
            "volumeMounts": [
                {"mountPath": "/conf", "volumeName": "settings"},
                {"mountPath": "/data", "volumeName": "datasets"},
                {"mountPath": "/tmp/x", "volumeName": "scratch-tmp-x"},
            ],
        },
        {"command": ["cache"], "image": "cache:1", "name": "cache", "restartPolicy": "Always"},
    ]
    assert any(
        "each runs as the user of its image" in said for said in notes_of(SOURCE, site(version=version))["GF305"]
    )


@pytest.mark.parametrize("version", [None, "2.17", "2.17.3"])
def test_this_kfp_refuses_them_and_names_the_key(version: str | None) -> None:
    with pytest.raises(GpuflowError, match=r"does not support sidecars(.|\n)*engines\.kubeflow\.version"):
        compiled(SOURCE, site=site(version=version))


def test_the_table_is_the_one_of_the_sites_version() -> None:
    assert isinstance(capabilities_at(Site.load("nvidia"))["init_containers"], NoSupport)
    assert isinstance(capabilities_at(site(version="2.18"))["init_containers"], PartialSupport)


@pytest.mark.parametrize(
    ("version", "words"),
    [("2.16.1", "is older than 2.17"), ("1.8", "is older than 2.17"), ("latest", "is not a version such as 2.17")],
)
def test_a_kfp_that_nothing_is_written_for_is_refused(version: str, words: str) -> None:
    with pytest.raises(GpuflowError, match=f"GF397 .*runs KFP {version}, which {words}"):
        compiled("name: a\nsteps: {a: {image: 'i:1', command: [x]}}", site=site(version=version))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("env: {MODE: fast}", "env: {MODE: {secret: s, key: k}}"), "MODE comes from an object"),
        (("command: [cache]", "command: [cache, {run: id}]"), '"cache" has references'),
        (("name: cache", "name: kfp-launcher"), "has the name of KFP's own"),
        (("command: [cache]", "command: [cache], volumes: {/o: {claim: o}}"), "that the step does not mount"),
        (("command: [cache]", "command: [cache], ports: [80]"), "no ports for the container"),
        (("command: [cache]", "command: [cache], probes: {startup: {tcp: 80}}"), "no probes for the container"),
        (
            ("command: [cache]", "command: [cache], volumes: {/data: {claim: datasets, sub_path: x}}"),
            "no sub_path for the mount at /data",
        ),
    ],
)
def test_what_its_init_containers_have_no_word_for_is_refused(change: tuple[str, str], words: str) -> None:
    assert change[0] in SOURCE
    with pytest.raises(GpuflowError, match=words):
        compiled(SOURCE.replace(*change), site=site(version="2.18"))


def test_a_component_says_that_the_installed_kfp_has_no_word_for_them() -> None:
    helper = {"name": "s", "image": "i:1", "command": ["y"]}
    with pytest.raises(GpuflowError, match="the installed kfp has no init containers"):
        kubeflow.component(gpuflow.Step(image="i:1", command=["x"], sidecars=[helper]), site(version="2.18"))


TARBALLS = (Path(__file__).resolve().parents[3].parent / "shared" / "engines").glob("kubeflow-pipelines-*.tar.gz")


def _proto() -> str:
    for file in TARBALLS:
        with tarfile.open(file) as archive:
            for member in archive:
                if member.name.endswith("kubernetes_executor_config.proto"):
                    inner = archive.extractfile(member)
                    assert inner is not None
                    return inner.read().decode()
    pytest.skip("KFP's source, which has the later message, is not there")


def test_every_field_that_is_written_is_one_of_kfps_message() -> None:
    text = _proto()
    block = text[text.index("message InitContainer {") :]
    names = {_camel(name) for name in re.findall(r"(\w+) = \d+;", block)}
    config = documents(SOURCE, site=site(version="2.18"))[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert "init_containers" in text
    assert set(_keys(config["exec-serve"]["initContainers"])) <= names


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _keys(value: Any) -> list[str]:
    if isinstance(value, list):
        return [key for item in value for key in _keys(item)]
    if not isinstance(value, dict):
        return []
    return [
        key for name, item in value.items() for key in (name, *(() if name in ("requests", "limits") else _keys(item)))
    ]


def test_what_is_compiled_for_both_differs_by_the_containers_alone() -> None:
    plain = re.sub(r"(?s)    init_containers:.*", "", SOURCE)
    texts = [compiled(plain, site=site(version=version)) for version in ("2.17", "2.18")]
    assert [*yaml.safe_load_all(texts[0])] == [*yaml.safe_load_all(texts[1])]
