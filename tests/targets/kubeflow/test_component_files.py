"""Pipelines of one step as primitive components, whose tasks kfp users change like any other.

Tests gpuflow/kubeflow.py and gpuflow/targets/kubeflow/document.py.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, dsl, kubernetes
from kfp.components import load_component_from_file

from gpuflow import kubeflow
from gpuflow.cli.main import main
from gpuflow.core.errors import GpuflowError
from tests.targets.kubeflow.compiling import HEAD, compiled

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "kfp_components"
SOURCE = """
name: train
params: {data: {type: string}, epochs: {type: int, default: 3}}
labels: {team: nlp}
steps:
  fit:
    image: i:1
    command: [fit, {param: data}, {param: epochs}]
    env: {MODE: fast, TOKEN: {secret: hub, key: token}}
    gpu: a100-80gb x 2
    memory: 8Gi
    retry: {failures: 2}
    cache: true
    volumes: {/data: {claim: datasets}}
    outputs: {loss: float}
outputs: {loss: {output: fit.loss}}
"""


def component_file(folder: Path, source: str = SOURCE) -> Path:
    path = folder / "train.yaml"
    path.write_text(compiled(source, form="component"))
    return path


def parts(pipeline: Any, folder: Path) -> tuple[Any, Any, Any]:
    """Task, container and config of the task called train."""
    file = folder / "hand.yaml"
    compiler.Compiler().compile(pipeline, str(file))
    spec, platform, *_ = [*yaml.safe_load_all(file.read_text()), {}]
    configs = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    container = spec["deploymentSpec"]["executors"]["exec-train"]["container"]
    return spec["root"]["dag"]["tasks"]["train"], container, configs.get("exec-train", {})


def test_its_tasks_have_everything_the_file_says(tmp_path: Path) -> None:
    train = kubeflow.load_component(component_file(tmp_path))

    @dsl.pipeline(name="by-hand")
    def by_hand(data: str) -> None:
        train(data=data)

    task, container, config = parts(by_hand, tmp_path)
    assert train.inputs == ("data", "epochs")
    assert task["cachingOptions"] == {"enableCache": True}
    # A step with outputs is supervised: what it asks for after failures happens inside its pod, and not once more.
    assert "--failures=2" in container["command"]
    assert "--repeat" in container["command"]
    assert "retryPolicy" not in task
    assert task["inputs"]["parameters"]["epochs"] == {"runtimeValue": {"constant": 3.0}}
    assert container["command"][:2] == ["env", "MODE=fast"]
    assert container["resources"]["accelerator"]["resourceCount"] == "2"
    assert config["secretAsEnv"][0]["secretName"] == "hub"
    assert config["pvcMount"][0]["mountPath"] == "/data"
    assert config["podMetadata"]["labels"]["team"] == "nlp"
    assert config["nodeAffinity"]


def test_its_tasks_have_kfps_retries_where_the_file_has_them(tmp_path: Path) -> None:
    plain = "name: train\nsteps: {fit: {image: 'i:1', command: [fit], retry: {failures: 2, backoff: 10s}}}\n"
    train = kubeflow.load_component(component_file(tmp_path, plain))

    @dsl.pipeline(name="by-hand")
    def by_hand() -> None:
        train()

    task, container, _ = parts(by_hand, tmp_path)
    assert container["command"] == ["fit"]
    policy = {"maxRetryCount": 2, "backoffDuration": "10s", "backoffFactor": 2.0, "backoffMaxDuration": "315360000s"}
    assert task["retryPolicy"] == policy


def test_its_tasks_take_every_change_that_kfp_knows(tmp_path: Path) -> None:
    train = kubeflow.load_component(component_file(tmp_path))

    @dsl.pipeline(name="by-hand")
    def by_hand(data: str) -> None:
        task = train(data=data).set_memory_limit("64Gi").set_accelerator_limit(8).set_container_image("mine:2")
        task.set_env_variable("MORE", "x").set_retry(5).set_caching_options(False).set_cpu_limit("4")
        kubernetes.add_pod_label(task, "cost", "low")
        kubernetes.mount_pvc(task, pvc_name="more", mount_path="/more")

    task, container, config = parts(by_hand, tmp_path)
    assert (container["image"], container["env"]) == ("mine:2", [{"name": "MORE", "value": "x"}])
    assert container["resources"]["resourceMemoryLimit"] == "64Gi"
    assert container["resources"]["accelerator"]["resourceCount"] == "8"
    assert (task["retryPolicy"]["maxRetryCount"], task["cachingOptions"]) == (5, {})
    assert config["podMetadata"]["labels"]["cost"] == "low"
    assert [mount["mountPath"] for mount in config["pvcMount"]] == ["/data", "/more"]


def test_kfps_own_loader_reads_it_as_a_container_that_takes_the_same_changes(tmp_path: Path) -> None:
    train = load_component_from_file(str(component_file(tmp_path)))

    @dsl.pipeline(name="by-hand")
    def by_hand(data: str) -> None:
        train(data=data).set_memory_limit("64Gi").set_accelerator_limit(1)

    _, container, config = parts(by_hand, tmp_path)
    assert container["command"][:2] == ["env", "MODE=fast"]
    assert container["resources"]["resourceMemoryLimit"] == "64Gi"
    assert config == {}, "kfp takes these from tasks only; the header says so"
    assert "leaves out resources, retries, caching" in component_file(tmp_path).read_text()


def test_a_source_is_loaded_for_a_site_with_other_fields(tmp_path: Path) -> None:
    source = tmp_path / "source.yaml"
    source.write_text(HEAD + SOURCE.lstrip())
    train = kubeflow.load_component(source, image="mine:2", gpu="h100 x 4")

    @dsl.pipeline(name="by-hand")
    def by_hand(data: str) -> None:
        train(data=data)

    _, container, config = parts(by_hand, tmp_path)
    assert (container["image"], container["resources"]["accelerator"]["resourceCount"]) == ("mine:2", "4")
    assert "NVIDIA-H100-80GB-HBM3" in config["nodeAffinity"][0]["matchExpressions"][0]["values"]
    with pytest.raises(GpuflowError, match=r"GF398 .*is compiled: gpu of its step is fixed"):
        kubeflow.load_component(component_file(tmp_path), gpu="h100")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("outputs: {loss: {output", "exit: {tell: {image: 'i:1', command: [x]}}\noutputs: {loss: {output"), "exit"),
        (("    gpu: ", "    for_each: {n: [1]}\n    gpu: "), 'for_each of step "fit" is written with dsl.ParallelFor'),
        (("    gpu: ", "    when: params.epochs > 1\n    gpu: "), 'when of step "fit" is written with dsl.If'),
        (("params:", "schedule: '0 3 * * *'\nparams:"), "schedule belongs to the pipeline"),
        (("outputs: {loss: {output", "outputs: {other: {output"), 'output "other" is called "loss"'),
        (("  fit:\n", "  more: {image: 'i:1', command: [x]}\n  fit:\n"), 'it has 2 steps, "fit", "more"'),
    ],
)
def test_what_is_not_one_component_is_refused_by_name(change: tuple[str, str], words: str) -> None:
    assert change[0] in SOURCE
    with pytest.raises(GpuflowError, match=f"GF398 (.|\\n)*{words}"):
        compiled(SOURCE.replace(*change), form="component")


def test_a_file_of_several_steps_is_told_which_loader_takes_it() -> None:
    with pytest.raises(GpuflowError, match='"nightly-finetune" is a pipeline, not a component'):
        kubeflow.load_component(FOLDER / "nightly-finetune.yaml")


@pytest.mark.parametrize("text", ["", "a: [", "- 1", "{}"])
def test_a_file_that_is_no_component_is_refused_without_a_traceback(text: str, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text(f"# Made by gpuflow 0.1.0\n{text}\n")
    with pytest.raises(GpuflowError, match="GF398 the file is no compiled component"):
        kubeflow.load_component(tmp_path / "broken.yaml")


def test_the_command_line_writes_a_component(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source.yaml"
    source.write_text(HEAD + SOURCE.lstrip())
    words = ["compile", str(source), "--target", "kubeflow", "--as", "component", "-o", str(tmp_path / "out.yaml")]
    assert main(words) == 0
    assert load_component_from_file(str(tmp_path / "out.yaml")).component_spec.implementation.container is not None
    source.write_text(HEAD + SOURCE.lstrip().replace("  fit:\n", "  more: {image: 'i:1', command: [x]}\n  fit:\n"))
    assert main([*words[:-1], str(tmp_path / "other.yaml")]) == 2
    assert "GF398" in capsys.readouterr().err
    assert not (tmp_path / "other.yaml").exists()
