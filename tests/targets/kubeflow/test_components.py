"""Components for hand-written pipelines: the ready-made ones, and those made of a step.

Tests gpuflow/kubeflow.py, gpuflow/targets/kubeflow/single_step.py and gpuflow/targets/single_step.py.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, dsl, kubernetes, local
from kfp.components import load_component_from_file, load_component_from_text

import gpuflow
from gpuflow import kubeflow
from gpuflow.cli.main import main
from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.site.model import Runtime
from gpuflow.spec.loading import load
from gpuflow.targets.capabilities import construct_losses
from gpuflow.targets.kubeflow import target
from gpuflow.targets.kubeflow.facts import KubeflowOptions
from gpuflow.targets.target import Request, compile_with
from tests.targets.kubeflow.launching import launch

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "kfp_components"
SOURCES = sorted((FOLDER / "sources").glob("*.yaml"))
COMPILED = sorted((FOLDER / "examples").glob("*.yaml"))
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.yaml"))
COMPONENTS = ("checkpointed-training", "dataset-staging", "quota-gate")
"""The sources of one step; the others have loops or several steps, and are pipelines."""
LEFT_OUT = {"finetune": "approval", "gang": "device_claim", "daily": "run.date"}
"""Examples that would be something else without what KFP cannot carry."""


def compile_by_kfp(pipeline: Any, folder: Path) -> list[dict[str, Any]]:
    path = folder / "hand.yaml"
    compiler.Compiler().compile(pipeline, str(path))
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_committed_component_is_what_its_source_compiles_to(source: Path) -> None:
    options = KubeflowOptions(form="component" if source.stem in COMPONENTS else None)
    shown = source.relative_to(FOLDER).as_posix()
    request = Request(load(source), Site.load("nvidia"), None, shown, (), options)
    compiled = compile_with(target, request, allow_lossy=False)
    assert compiled.losses == ()
    artifact = compiled.artifact
    assert (FOLDER / artifact.name).read_text() == artifact.text, "compile kfp_components/sources again"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_kfp_loads_the_component_with_its_parameters_and_outputs(source: Path) -> None:
    pipeline = load(source)
    loaded = load_component_from_file(str(FOLDER / source.name))
    asked = {"pipeline_run_id"} if source.stem == "checkpointed-training" else set()
    assert set(loaded.component_spec.inputs or {}) == {*pipeline.params, *asked}
    assert set(loaded.component_spec.outputs or {}) == set(pipeline.outputs)
    assert (loaded.component_spec.implementation.container is not None) == (source.stem in COMPONENTS)


def test_every_example_is_compiled_or_left_out_for_a_reason() -> None:
    assert {path.stem for path in COMPILED} == {path.stem for path in EXAMPLES} - set(LEFT_OUT)
    for path in EXAMPLES:
        lost = {loss.construct for loss in construct_losses(load(path), target.capabilities, target.name)}
        assert LEFT_OUT.get(path.stem) in {*lost, None}


def test_the_command_in_the_readme_finds_nothing_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    lines = (FOLDER / "README.md").read_text().splitlines()
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("gpuflow compile ")]
    assert len(commands) == 3
    for words in commands:
        files = [str(path) for word in words for path in (sorted(ROOT.glob(word)) if "*" in word else [word])]
        assert main([*files, "--check"]) == 0


def test_the_readme_names_every_component_with_what_it_takes_and_every_example() -> None:
    readme = (FOLDER / "README.md").read_text()
    for source in SOURCES:
        (row,) = [line for line in readme.splitlines() if line.startswith(f"| `{source.name}` |")]
        assert set(re.findall(r"`(\w+)`", row.split("|")[3])) == set(load(source).params)
    assert all(f"| `{path.name}` |" in readme for path in COMPILED)


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.stem)
def test_kfp_loads_the_compiled_example(path: Path) -> None:
    loaded = load_component_from_file(str(path))
    assert set(loaded.component_spec.inputs or {}) == set(load(ROOT / "docs" / "examples" / path.name).params)


def test_ready_made_components_work_together_in_a_hand_written_pipeline(tmp_path: Path) -> None:
    gate, stage, train = (
        kubeflow.load_component(FOLDER / f"{name}.yaml") for name in ("quota-gate", *COMPONENTS[1::-1])
    )
    infer = load_component_from_file(str(FOLDER / "mig-batch-inference.yaml"))

    @dsl.pipeline(name="by-hand")
    def by_hand(source: str = "s3://datasets/latest") -> None:
        asked = gate(pipeline="/pipelines/train.yaml", namespace="nlp")
        staged = stage(source=source).after(asked)
        trained = train(data="/data/dataset", store="s3://models/run").after(staged)
        infer(model=trained.outputs["model"], output="s3://results")

    spec, platform = compile_by_kfp(by_hand, tmp_path)
    executors = spec["deploymentSpec"]["executors"]
    assert executors["exec-infer"]["container"]["resources"]["accelerator"]["resourceType"] == "nvidia.com/mig-1g.10gb"
    assert platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-checkpointed-training"][
        "emptyDirMounts"
    ]


def test_dataset_staging_copies_files_and_counts_them_as_the_launcher_runs_it(tmp_path: Path) -> None:
    source, aim = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    (source / "a.bin").write_bytes(b"12345")
    (source / "deep" / "b.bin").write_bytes(b"123")
    spec, *_ = yaml.safe_load_all((FOLDER / "dataset-staging.yaml").read_text())
    container = spec["deploymentSpec"]["executors"]["exec-dataset-staging"]["container"]
    given = {"source": str(source), "target": str(aim)}
    left = launch(container, given, ("files", "bytes"), tmp_path / "first")
    assert left == {"files": "2", "bytes": "8"}
    assert (aim / "deep" / "b.bin").read_bytes() == b"123"


TRAIN = gpuflow.Step(
    image="registry.example.com/train:1",
    command=["train", "--lr", {"param": "lr"}, "--shards", {"output": "prepare.shards"}],
    gpu="l4",
    cpu="1500m",
    memory="1G",
    env={"TOKEN": {"secret": "hub", "key": "token"}, "MODE": "fast"},
    shm="8Gi",
    queue="research",
    retry=1,
    timeout="1h",
    outputs={"loss": float},
)


def one_task(task_of: Any, folder: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Task, container and Kubernetes config of the task called train."""

    @dsl.container_component
    def prepare(shards: dsl.OutputPath(int)) -> dsl.ContainerSpec:  # type: ignore[valid-type]  # kfp's own annotations
        return dsl.ContainerSpec(image="i:1", command=["prepare", shards])

    def body(lr: float = 0.1) -> None:
        task_of(lr, prepare().outputs["shards"])

    spec, platform = compile_by_kfp(dsl.pipeline(name="by-hand")(body), folder)
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    return (
        spec["root"]["dag"]["tasks"]["train"],
        spec["deploymentSpec"]["executors"]["exec-train"]["container"],
        executors["exec-train"],
    )


def test_a_steps_references_are_keyword_arguments_that_take_kfp_channels(tmp_path: Path) -> None:
    made = kubeflow.component(TRAIN, name="train")
    task, container, config = one_task(lambda lr, shards: made(lr=lr, shards=shards), tmp_path)
    assert made.inputs == ("lr", "shards")
    assert task["inputs"]["parameters"]["lr"] == {"componentInputParameter": "lr"}
    assert task["inputs"]["parameters"]["shards"]["taskOutputParameter"]["producerTask"] == "prepare"
    # It has outputs, so that a supervisor repeats failures inside the pod, and each attempt has its whole hour.
    assert "retryPolicy" not in task
    assert {"--repeat", "--retries=1", "--timeout=1h"} <= {*container["command"]}
    assert config["activeDeadlineSeconds"] == str(2 * (3600 + 30) + 3600)
    assert container["command"][-5:] == [
        "train", "--lr", "{{$.inputs.parameters['lr']}}", "--shards", "{{$.inputs.parameters['shards']}}"
    ]  # fmt: skip
    assert container["resources"]["accelerator"]["resourceType"] == "nvidia.com/gpu"
    assert container["resources"]["resourceMemoryLimit"] == "1000000000"
    assert config["emptyDirMounts"][0]["mountPath"] == "/dev/shm"


def test_a_component_says_which_argument_is_wrong() -> None:
    made = kubeflow.component(TRAIN, name="train")
    with pytest.raises(GpuflowError, match='takes no "rate"; it takes lr, shards'):
        made(rate=1)
    with pytest.raises(GpuflowError, match='needs "lr"'):
        made(shards=1)


def test_a_components_name_must_be_a_steps_name() -> None:
    with pytest.raises(GpuflowError, match='"My Step" is not a step name'):
        kubeflow.component(TRAIN, name="My Step")


def test_two_outputs_of_one_name_are_told_apart_by_their_steps() -> None:
    step = gpuflow.Step(image="i:1", command=["x", {"output": "a-b.n"}, {"output": "c.n"}, {"output": "c.m"}])
    assert kubeflow.component(step).inputs == ("a_b_n", "c_n", "m")


def test_the_components_text_is_a_component_that_kfp_loads() -> None:
    loaded = load_component_from_text(kubeflow.component(TRAIN, name="train").text())
    assert set(loaded.component_spec.inputs) == {"lr", "shards"}
    assert set(loaded.component_spec.outputs) == {"loss"}


def test_what_kfp_cannot_carry_and_what_kfp_itself_should_say_are_refused() -> None:
    with pytest.raises(GpuflowError, match="does not support sidecars"):
        kubeflow.component(
            gpuflow.Step(image="i:1", command=["x"], sidecars=[{"name": "s", "image": "i:1", "command": ["y"]}])
        )
    with pytest.raises(GpuflowError, match="service_account= of the call that starts the run"):
        kubeflow.component(gpuflow.Step(image="i:1", command=["x"], service_account="trainer"))
    with pytest.raises(GpuflowError, match=r"dsl\.ParallelFor"):
        kubeflow.component(gpuflow.Step(image="i:1", command=["x", {"item": "n"}], for_each={"n": [1, 2]}))
    with pytest.raises(GpuflowError, match=r"write \{param: n\}, and pass the loop's item as n="):
        kubeflow.component(gpuflow.Step(image="i:1", command=["x", {"item": "n"}]))
    with pytest.raises(GpuflowError, match=r"new_claim belongs to the pipeline.*\n.*mount_pvc"):
        kubeflow.component(gpuflow.Step(image="i:1", command=["x"], volumes={"/data": {"new_claim": "c"}}))
    with pytest.raises(GpuflowError, match='"pipeline_run_id" is an input that KFP itself gives'):
        kubeflow.component(gpuflow.Step(image="i:1", command=["x", {"param": "pipeline_run_id"}, {"run": "id"}]))
    with pytest.raises(GpuflowError, match=r"expected a gpuflow\.Step, not a dict"):
        kubeflow.component({"image": "i:1", "command": ["x"]})  # type: ignore[arg-type]  # wrong on purpose


def test_a_component_takes_the_items_of_every_loop_and_what_all_copies_gave(tmp_path: Path) -> None:
    square = kubeflow.component(
        gpuflow.Step(image="i:1", command=["x", {"param": "n"}], outputs={"m": int}), name="square"
    )
    total = kubeflow.component(gpuflow.Step(image="i:1", command=["x", {"output": "square.m"}]), name="total")

    @dsl.pipeline(name="loops")
    def loops(names: list = ["a"]) -> None:  # type: ignore[type-arg]  # noqa: B006  # kfp's defaults
        with dsl.ParallelFor([{"n": 1}]) as row:
            square(n=row.n)
        with dsl.ParallelFor([1, 2]) as n:
            squares = square(n=n)
        with dsl.ParallelFor(names) as name:
            square(n=name)
        total(m=dsl.Collected(squares.outputs["m"]))

    components = compile_by_kfp(loops, tmp_path)[0]["components"]
    types = [
        components[name]["inputDefinitions"]["parameters"][key]["parameterType"]
        for name, key in (("comp-square", "n"), ("comp-square-2", "n"), ("comp-square-3", "n"), ("comp-total", "m"))
    ]
    assert types == ["NUMBER_INTEGER", "NUMBER_INTEGER", "STRING", "LIST"]


def test_tasks_of_one_component_keep_their_checkpoints_apart(tmp_path: Path) -> None:
    fields = {"checkpoint": {"path": "/checkpoints", "store": "s3://models"}, "retry": 1}
    train = kubeflow.component(gpuflow.Step(image="i:1", command=["x", {"param": "n"}], **fields), name="train")

    @dsl.pipeline(name="copies")
    def copies() -> None:
        train(n=1)
        train(n=1)
        with dsl.ParallelFor([1, 1]) as n:
            train(n=n)

    assert train.inputs == ("n",)
    spec, platform = compile_by_kfp(copies, tmp_path)
    command = spec["deploymentSpec"]["executors"]["exec-train"]["container"]["command"]
    assert "--step=train" in command
    assert set(spec["root"]["dag"]["tasks"]["train-2"]["inputs"]["parameters"]) == {"n"}, (
        "nothing of the run is an input"
    )
    fields = {
        "GPUFLOW_RUN_RUN_ID": "metadata.labels['pipeline/runid']",
        "GPUFLOW_RUN_TASK": "metadata.annotations['workflows.argoproj.io/node-name']",
    }
    config = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-train-2"]
    assert {entry["name"]: entry["fieldPath"] for entry in config["fieldPathAsEnv"]} == fields


def test_configure_gives_a_task_the_steps_pod_and_leaves_its_command(tmp_path: Path) -> None:
    step = gpuflow.Step(image="i:1", command=["unused"], mig="1g.10gb of a100-80gb", memory="12Gi", queue="research")

    @dsl.container_component
    def train(lr: float) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image="mine:1", command=["mine", lr])

    task, container, config = one_task(lambda lr, _: kubeflow.configure(train(lr=lr), step), tmp_path)
    assert (container["image"], container["command"][0]) == ("mine:1", "mine")
    assert container["resources"]["accelerator"]["resourceType"] == "nvidia.com/mig-1g.10gb"
    assert config["podMetadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert task["cachingOptions"] == {"enableCache": True}, "kfp's own default, which the step does not speak of"
    assert "securityContext" not in config, "the task runs as the user it ran as"


def test_configure_takes_a_step_that_runs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @dsl.component(packages_to_install=["numpy"])
    def train(lr: float) -> None:
        pass

    _, container, config = one_task(
        lambda lr, _: kubeflow.configure(train(lr=lr), gpuflow.Step(gpu="a100-80gb")), tmp_path
    )
    assert container["resources"]["accelerator"]["resourceCount"] == "1"
    assert "numpy" in " ".join(container["command"])
    assert config["nodeAffinity"]
    assert "securityContext" not in config
    assert not caplog.messages


def test_configure_sets_the_user_and_the_caching_that_the_step_names(tmp_path: Path) -> None:
    step = gpuflow.Step(cpu=1, security={"user": 1234}, cache=False)

    @dsl.container_component
    def train(lr: float) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image="mine:1", command=["mine", lr])

    task, _, config = one_task(lambda lr, _: kubeflow.configure(train(lr=lr), step), tmp_path)
    assert config["securityContext"]["runAsUser"] == "1234"
    assert task["cachingOptions"] == {}


def test_configure_says_what_it_leaves_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    step = gpuflow.Step(image="i:1", command=["unused"], env={"MODE": "fast"})

    @dsl.container_component
    def train(lr: float) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image="mine:1", command=["mine", lr])

    one_task(lambda lr, _: kubeflow.configure(train(lr=lr), step, name="train"), tmp_path)
    said = "\n".join(caplog.messages)
    assert 'leaves the image and the command of task "train" alone: image, command of the step has no effect' in said
    assert 'task "train" may get an earlier result' in said


def test_a_step_that_runs_nothing_is_refused_where_it_would_have_to_run() -> None:
    with pytest.raises(GpuflowError, match="GF164 the step runs nothing"):
        kubeflow.component(gpuflow.Step(image="i:1", gpu="l4"))
    with pytest.raises(GpuflowError, match="GF164"):
        gpuflow.Pipeline(name="p", steps={"a": gpuflow.Step(image="i:1", gpu="l4")})


def test_nodes_of_a_configured_task_are_those_that_both_allow(tmp_path: Path) -> None:
    @dsl.container_component
    def train(lr: float) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image="mine:1", command=["mine", lr])

    def task_of(lr: Any, _: Any) -> None:
        zone = [{"key": "zone", "operator": "In", "values": ["a"]}]
        task = kubernetes.add_node_affinity(train(lr=lr), match_expressions=zone)
        kubeflow.configure(task, gpuflow.Step(gpu="a100-80gb"))

    _, _, config = one_task(task_of, tmp_path)
    (term,) = config["nodeAffinity"]
    assert [found["key"] for found in term["matchExpressions"]] == ["zone", "nvidia.com/gpu.product"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"checkpoint": {"path": "/c", "store": "s3://models"}}, "checkpoint needs the supervisor"),
        ({"outputs": {"loss": float}}, "outputs need the supervisor"),
        ({"working_dir": "/srv"}, "KFP has no working directory"),
        ({"env": {"RATE": {"param": "lr"}}}, "cannot set RATE to a reference"),
    ],
)
def test_configure_drops_nothing_that_only_a_command_can_carry(fields: Any, words: str, tmp_path: Path) -> None:
    step = gpuflow.Step(image="i:1", command=["unused"], **fields)

    @dsl.container_component
    def train(lr: float) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image="mine:1", command=["mine", lr])

    with pytest.raises(GpuflowError, match=words):
        one_task(lambda lr, _: kubeflow.configure(train(lr=lr), step), tmp_path)
    with pytest.raises(GpuflowError, match="takes a task and a step, not a ContainerComponent"):
        kubeflow.configure(train, step)


@pytest.mark.filterwarnings("ignore:Task 'double'")  # locally, kfp says that resources have no effect
def test_a_configured_task_runs_under_kfps_local_runner(tmp_path: Path) -> None:
    @dsl.component(install_kfp_package=False, base_image="python:3.11")
    def double(number: int) -> int:
        return 2 * number

    @dsl.pipeline(name="locally")
    def locally(number: int = 21) -> int:
        task = double(number=number)
        kubeflow.configure(task, gpuflow.Step(image="i:1", command=["unused"], gpu="l4", retry=1, cpu=1, memory="1Gi"))
        return task.output  # type: ignore[no-any-return]  # kfp has no types

    local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path))
    assert locally(number=4).output == 8


def test_a_pipeline_is_never_written_over_by_what_it_compiles_to(tmp_path: Path, capsys: Any) -> None:
    source = tmp_path / "quota-gate.yaml"
    text = (FOLDER / "sources" / "quota-gate.yaml").read_text()
    source.write_text(text)
    for output in (source, tmp_path):
        assert main(["compile", str(source), "--target", "kubeflow", "-o", str(output)]) == 2
        assert "would overwrite the pipeline itself" in capsys.readouterr().err
    assert source.read_text() == text


def test_a_step_in_hand_written_code_asks_for_any_gpu(tmp_path: Path) -> None:
    @dsl.pipeline(name="hand")
    def hand() -> None:
        kubeflow.component(gpuflow.Step(image="i:1", command=["train"], gpu=1), name="train")()

    text = yaml.safe_dump_all(compile_by_kfp(hand, tmp_path))
    assert "resourceType: nvidia.com/gpu" in text and "gpu.product" not in text


def test_text_like_a_template_is_questioned_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    step = gpuflow.Step(image="i", command=["x", "{{ ds }}", {"param": "lr"}, {"param": "day"}, {"param": "job"}])

    @dsl.pipeline(name="by-hand")
    def by_hand(lr: float = 0.1) -> None:
        made = kubeflow.component(step, name="x")
        made(lr=lr, day="{{ ds }}", job=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
        made(lr=lr, day=gpuflow.text("{{ ds }}"), job="j")

    compile_by_kfp(by_hand, tmp_path)
    said = [record.getMessage() for record in caplog.records if record.name == "gpuflow.kubeflow"]
    assert [line.split(": GF341 ")[1].split(" is plain")[0] for line in said] == ["command: {{ ds }}", "day={{ ds }}"]
    assert all(__file__ in line for line in said)


def test_a_component_and_a_configured_task_say_what_remains_of_two_budgets(caplog: Any) -> None:
    retried = gpuflow.Step(image="i:1", command=["work"], retry={"failures": 2, "interruptions": 5})
    runtime = {"delivery": "config-map", "state": "s3://state"}
    site = Site.load("nvidia").model_copy(update={"runtime": Runtime.model_validate(runtime)})
    tasks: dict[str, Any] = {}

    @dsl.container_component
    def mine() -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image="mine:1", command=["mine"])

    def body() -> None:
        tasks["component"] = kubeflow.component(retried, site, name="work")()
        tasks["configured"] = kubeflow.configure(mine(), retried, site)

    dsl.pipeline(name="by-hand")(body)
    policies = {name: task._task_spec.retry_policy for name, task in tasks.items()}
    assert policies["component"].max_retry_count == 5
    assert policies["configured"].max_retry_count == 7, "no supervisor can stand in front of its command"
    assert "gpuflow-runtime" not in str(tasks["configured"].platform_config)
    assert "GF392" in caplog.text and "GF394" in caplog.text


def test_a_refusal_in_python_names_the_line_and_no_flag_of_the_command_line() -> None:
    with pytest.raises(GpuflowError) as caught:
        kubeflow.component(gpuflow.Step(image="i", command=["x"], env_from=[{"secret": "s"}]), name="x")
    said = str(caught.value)
    assert "env_from" in said and "allow-lossy" not in said
    assert said.startswith(__file__)
