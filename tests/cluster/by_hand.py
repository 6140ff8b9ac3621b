"""`python by_hand.py IMAGE SITE FILE`: a pipeline of kfp's own components and of gpuflow's, compiled by kfp."""

import sys
from typing import Any

from kfp import compiler, dsl

import gpuflow
import gpuflow.kubeflow

IMAGE, SITE, FILE = sys.argv[1:]
SMALL: dict[str, Any] = {
    "image": IMAGE,
    "image_pull_policy": "IfNotPresent",
    "cpu": {"request": "20m"},
    "memory": {"request": "64Mi", "limit": "512Mi"},
}


@dsl.container_component
def prepare(data: dsl.Output[dsl.Dataset]):  # type: ignore[no-untyped-def]  # kfp takes an annotation for an output
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["sh", "-c", 'mkdir -p "$0/part"; echo "rows of kfp" > "$0/part/0.csv"'],
        args=[data.path],
    )


@dsl.container_component
def evaluate(model: dsl.Input[dsl.Model]):  # type: ignore[no-untyped-def]  # as above
    command = ["sh", "-c", 'echo "evaluate reads: $(cat "$0/sub/weights")"']
    return dsl.ContainerSpec(image=IMAGE, command=command, args=[model.path])


MODEL = {"model": {"type": "directory", "kind": "model"}}
TRAIN = (
    'echo "train reads: $(cat /in/data/part/0.csv)"; mkdir -p $GPUFLOW_OUTPUTS/model/sub; '
    'echo "learned from $(cat /in/data/part/0.csv)" > $GPUFLOW_OUTPUTS/model/sub/weights'
)
train = gpuflow.Step(
    command=["sh", "-ec", TRAIN], inputs={"/in/data": {"uri": {"param": "data"}}}, outputs=MODEL, **SMALL
)
points = train.model_copy(update={"engines": gpuflow.Step(engines={"kubeflow": {"hand_over": False}}).engines})


def reader(how: str) -> Any:
    step = gpuflow.Step(
        command=["sh", "-ec", f'echo "from {how}: $(cat /in/model/sub/weights)"'],
        inputs={"/in/model": {"output": "train.model"}},
        **SMALL,
    )
    return gpuflow.kubeflow.component(step, site=SITE, name=f"from-{how}")


@dsl.pipeline(name="hand")
def hand() -> None:
    data = prepare().outputs["data"]
    made = gpuflow.kubeflow.component(train, site=SITE, name="train")(data=data)
    evaluate(model=made.outputs["model"])
    reader("files")(model=made.outputs["model"])
    reader("uri")(model=made.outputs["model-uri"])
    pointing = gpuflow.kubeflow.component(points, site=SITE, name="points")(data=data)
    reader("pointer")(model=pointing.outputs["model"])


compiler.Compiler().compile(hand, FILE)
