"""The key that signs the state: a file for the supervisor of steps that keep state, and for nobody else.

Tests gpuflow/pod/supervision.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuflow import GpuflowError, Pipeline, Site
from gpuflow.kubernetes.admission.decision import admit
from gpuflow.pod import pod_for
from tests.pod.test_build import RESTRICTED, site

CHECKPOINT = {"path": "/ckpt", "store": "s3://b/p"}
KEY = "runtime: {key: {secret: gpuflow-key, key: signing}}"


def pod(site: Site, **fields: Any) -> dict[str, Any]:
    step = {"image": "registry.example.com/x:1", "command": ["run"], **fields}
    return pod_for(Pipeline("p", steps={"a": step}), "a", site)


def test_the_key_is_mounted_as_a_file_and_the_supervisor_is_told_where(tmp_path: Path) -> None:
    helper = {"name": "h", "image": "i", "command": ["x"]}
    manifest = pod(
        site(tmp_path, KEY), checkpoint=CHECKPOINT, sidecars=[helper], init_containers=[{**helper, "name": "i"}]
    )
    spec = manifest["spec"]
    main = spec["containers"][0]
    assert "--key-file=/gpuflow/key/signing" in main["command"]
    (volume,) = [each for each in spec["volumes"] if "secret" in each]
    # Group, because the kubelet gives the file to root and the pod's fsGroup.
    assert volume["secret"] == {
        "secretName": "gpuflow-key",
        "items": [{"key": "signing", "path": "signing"}],
        "defaultMode": 0o440,
    }
    assert spec["securityContext"]["fsGroup"] == 1000
    assert {"name": volume["name"], "mountPath": "/gpuflow/key", "readOnly": True} in main["volumeMounts"]
    assert not any("gpuflow-key" in str(helper) or volume["name"] in str(helper) for helper in spec["initContainers"])
    assert "gpuflow-key" not in str(main.get("env", [])) + str(main.get("envFrom", []))
    named = {"apiVersion": "v1", "kind": "Pod", **manifest, "metadata": {"name": "p", **manifest["metadata"]}}
    assert admit(named, namespace=RESTRICTED).message is None


def test_steps_that_keep_no_state_do_not_get_the_key(tmp_path: Path) -> None:
    with_key = site(tmp_path, KEY)
    for fields in ({}, {"outputs": {"n": "int"}}):
        assert "key" not in str(pod(with_key, **fields)["spec"].get("volumes", ""))
        assert "--key-file" not in str(pod(with_key, **fields))


def test_without_a_key_in_the_site_nothing_changes(tmp_path: Path) -> None:
    assert "key" not in str(pod(site(tmp_path, ""), checkpoint=CHECKPOINT)["spec"]["volumes"])


def test_the_key_is_called_key_unless_the_site_says_otherwise(tmp_path: Path) -> None:
    manifest = pod(site(tmp_path, "runtime: {key: {secret: s}}"), checkpoint=CHECKPOINT)
    assert "--key-file=/gpuflow/key/key" in manifest["spec"]["containers"][0]["command"]


def test_a_config_map_name_leaves_room_for_the_hash(tmp_path: Path) -> None:
    assert site(tmp_path, f"runtime: {{config_map: {'c' * 244}}}").runtime.config_map
    with pytest.raises(GpuflowError, match="GF138"):
        site(tmp_path, f"runtime: {{config_map: {'c' * 245}}}")


@pytest.mark.parametrize("name", ["../x", "..", "..x", "a/b", "$(X)", "{{x}}", "", "a b"])
def test_a_key_that_no_secret_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(GpuflowError, match="GF138"):
        site(tmp_path, f"runtime: {{key: {{secret: s, key: '{name}'}}}}")
