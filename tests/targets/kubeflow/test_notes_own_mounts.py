"""KFP's own mounts, and what the launcher asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.plan import plan_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow.refusals import MOUNTS, hidden_paths
from tests.targets.kubeflow.compiling import HEAD, compiled


def source(**step: Any) -> str:
    return f"name: p\nsteps:\n  a: {json.dumps({'image': 'i:1', 'command': ['x'], **step})}\n"


@pytest.mark.parametrize("path", [*MOUNTS, "/s3/", "/var/run/../run/argo"])
def test_a_volume_at_a_path_of_kfps_own_is_refused(path: str) -> None:
    with pytest.raises(GpuflowError, match=r'GF386 step "a" mounts a volume at .*, where KFP mounts one of its own'):
        compiled(source(volumes={path: {"claim": "data"}}), lossy=True)


def test_a_checkpoint_in_scratch_space_is_a_mount_too() -> None:
    with pytest.raises(GpuflowError, match="GF386"):
        compiled(source(checkpoint={"path": "/.cache", "store": "s3://b/c"}), lossy=True)


def test_volumes_below_and_beside_are_fine() -> None:
    compiled(source(volumes={"/s3/data": {"claim": "data"}, "/s3x": {"claim": "other"}}))


def noted(text: str) -> list[str]:
    found = list(hidden_paths(plan_of(loads(HEAD + text), Site.load("nvidia"))))
    assert {(each.code, each.severity) for each in found} <= {("GF387", "note")}
    return [each.message for each in found]


def test_a_step_that_works_in_a_hidden_folder_is_told() -> None:
    (message,) = noted(source(working_dir="/.config/app"))
    assert message.startswith('step "a": /.config/app is in /.config, where KFP mounts an empty folder')
    (message,) = noted(source(outputs={"o": {"type": "string", "path": "/gcs/o"}}))
    assert message.startswith('step "a": /gcs/o is in /gcs')
    assert noted(source(working_dir="/srv", outputs={"o": {"type": "string", "path": "/tmp/o"}})) == []
    assert noted(source(working_dir="/s3/data/x", volumes={"/s3/data": {"claim": "data"}})) == []


def test_the_launchers_memory_is_counted_as_kubernetes_defaults_it() -> None:
    """KFP gives its launcher a limit and no request of memory; the API server copies the limit."""
    pipeline = loads(HEAD + source(cpu="50m", memory="64Mi"))
    (step,) = demand_of(pipeline, Site.load("nvidia"), "kubeflow").steps
    requests = {key: str(value) for key, value in step.requests.items()}
    assert (requests["cpu"], requests["memory"]) == ("100m", "256Mi")
