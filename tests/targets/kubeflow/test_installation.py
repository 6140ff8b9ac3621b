"""Claims and fsGroup: named where nobody sets the group, and quiet where the site says that the installation does."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import gpuflow
from gpuflow import kubeflow
from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.targets.kubeflow.installation import spec_patch
from tests.targets.kubeflow.compiling import compiled
from tests.targets.kubeflow.test_caching import notes_of

SOURCE = """
name: claims
claims: {fresh: {size: 1Gi, storage_class: fast}}
defaults: {image: "i:1"}
steps:
  old: {command: [x], volumes: {/data: {claim: datasets}}}
  new: {command: [x], volumes: {/fresh: {new_claim: fresh}, /own: {ephemeral: {size: 1Gi}}}}
  reads: {command: [x], volumes: {/data: {secret: s}}}
  root: {command: [x], volumes: {/data: {claim: other}}, security: {run_as_root: true}}
  scratch: {command: [x], volumes: {/tmp/x: {empty_dir: 1Gi}}}
"""


def site(**said: Any) -> Site:
    """A site whose KFP is said to do more than others."""
    base = Site.load("nvidia")
    engine = base.engine("kubeflow").model_copy(update=said)
    return base.model_copy(update={"engines": {**base.engines, "kubeflow": engine}})


def test_one_warning_names_the_steps_and_the_claims() -> None:
    (said,) = notes_of(SOURCE)["GF396"]
    assert 'steps "old", "new" mount "datasets", "fresh", "/own" without being root' in said


def test_nothing_is_said_where_the_installation_sets_the_group() -> None:
    assert "GF396" not in notes_of(SOURCE, site(fs_group=1000))
    assert "GF396" in notes_of(SOURCE, site(fs_group=2000)), "another group than the site's identity"


def test_a_group_that_a_step_names_is_refused_unless_the_installation_gives_it() -> None:
    source = SOURCE.replace("  old: {", "  old: {security: {fs_group: 2000}, ")
    with pytest.raises(GpuflowError, match=r'step "old": .*no fs_group, and the installation gives none'):
        compiled(source)
    with pytest.raises(GpuflowError, match="the installation gives 1000 to all pods"):
        compiled(source, site=site(fs_group=1000))
    compiled(source, site=site(fs_group=2000))


def test_the_patch_gives_every_pod_the_group_of_the_site() -> None:
    for given, group in ((site(fs_group=2000), 2000), (Site.load("nvidia"), 1000)):
        assert spec_patch(given)["templateDefaults"]["securityContext"] == {"fsGroup": group}


def test_a_component_says_it_too(caplog: pytest.LogCaptureFixture) -> None:
    step = gpuflow.Step(image="i:1", command=["x"], volumes={"/data": {"claim": "datasets"}})
    with caplog.at_level(logging.WARNING):
        kubeflow.component(step, site(fs_group=1000), name="train")
        assert not caplog.messages
        kubeflow.component(step, name="train")
    assert 'GF396 step "train" mounts "datasets"' in caplog.text


def test_the_key_is_kubeflows_alone(tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(
        "apiVersion: gpuflow/v1\nkind: Site\nname: here\nextends: nvidia\nengines: {argo: {fs_group: 1000}}\n"
    )
    with pytest.raises(GpuflowError, match='unknown key "fs_group"'):
        Site.load(str(file))
