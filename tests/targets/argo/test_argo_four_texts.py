"""Texts that once passed Argo and the kubelet as they were: an output's path, a Secret's key, a storage class, where
the site counts retries. Each arrives as it was written, or is refused."""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from tests.targets.argo.manifests import compiled, template

TAG, VARIABLE = "{{workflow.name}}", "$(DB_PASSWORD)"


def site(**runtime: str) -> Site:
    nvidia = Site.load("nvidia")
    return nvidia.model_copy(update={"runtime": nvidia.runtime.model_copy(update=runtime)})


def words(text: str, where: Site | str = "nvidia") -> list[str]:
    found: list[str] = template(compiled(text, where), "a")["container"]["command"]
    return found


def test_the_path_of_an_output_is_data() -> None:
    text = f'steps: {{a: {{command: [x], outputs: {{o: {{type: int, path: "/o/{TAG}{VARIABLE}"}}}}}}}}'
    assert "--output=o:int=/o/{$(GPUFLOW_BRACE)workflow.name}}$$(DB_PASSWORD)" in words(text)


@pytest.mark.parametrize("source", ["secret", "config_map"])
@pytest.mark.parametrize(
    "place", ["env: {E: %s}", "init_containers: [{name: h, image: i, command: [y], env: {E: %s}}]"]
)
def test_a_tag_in_a_key_is_refused(source: str, place: str) -> None:
    key = f'{{{source}: s, key: "{TAG}"}}'
    with pytest.raises(GpuflowError, match="GF306"):
        compiled(f"steps: {{a: {{command: [x], {place % key}}}}}")
    compiled(f"steps: {{a: {{command: [x], {place % key.replace(TAG, 'k')}}}}}")


def test_a_tag_in_a_storage_class_is_refused() -> None:
    text = 'claims: {c: {size: 1Gi, storage_class: "%s"}}\nsteps: {a: {command: [x], volumes: {/c: {new_claim: c}}}}'
    with pytest.raises(GpuflowError, match="GF306"):
        compiled(text % TAG)
    compiled(text % "fast")


@pytest.mark.parametrize(
    ("runtime", "word"),
    [
        ({"state": f"s3://b/{TAG}{VARIABLE}"}, "--state=s3://b/{$(GPUFLOW_BRACE)workflow.name}}$$(DB_PASSWORD)"),
        ({"delivery": "config-map", "python": VARIABLE, "state": "s3://b"}, "$$(DB_PASSWORD)"),
        ({"delivery": "config-map", "mount": f"/{VARIABLE}", "state": "s3://b"}, "/$$(DB_PASSWORD)/gpuflow-run"),
    ],
    ids=["state", "python", "mount"],
)
def test_what_the_site_says_of_the_supervisor_is_data(runtime: dict[str, Any], word: str) -> None:
    text = "steps: {a: {command: [x], retry: {failures: 1, interruptions: 1}}}"
    assert word in words(text, site(**runtime))


def test_the_folder_of_checkpoints_is_data() -> None:
    text = f'steps: {{a: {{command: [x], checkpoint: {{path: "/c/{VARIABLE}", store: s3://b}}}}}}'
    assert "--checkpoint-dir=/c/$$(DB_PASSWORD)" in words(text)


def test_braces_in_the_command_of_a_probe_are_put_back() -> None:
    text = 'steps: {a: {command: [x], probes: {liveness: {command: [y, "{{z}}"]}}}}'
    container = template(compiled(text), "a")["container"]
    assert container["livenessProbe"]["exec"]["command"] == ["y", "{$(GPUFLOW_BRACE)z}}"]
    assert container["env"] == [{"name": "GPUFLOW_BRACE", "value": "{"}]
