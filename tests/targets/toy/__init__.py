"""A toy engine: its whole package, to show that adding an engine needs nothing else but one line in the registry."""

from __future__ import annotations

from dataclasses import dataclass

from gpuflow.core.emit import emit
from gpuflow.core.errors import Finding
from gpuflow.engines import EngineFacts
from gpuflow.pod import Engine, pod_for
from gpuflow.targets.capabilities import Loss, NoSupport, PartialSupport, capabilities
from gpuflow.targets.constructs import ENGINE_OPTIONS, POD, VOCABULARY
from gpuflow.targets.target import Artifact, Request, Target, header, option

FACTS = EngineFacts(
    name="toy",
    title="Toy",
    waits={
        "quota": "Toy waits for quota.",
        "queue": "Toy waits in the queue.",
        "nodes": "Toy waits for nodes.",
        "objects": "Toy waits for objects.",
    },
    keeps_parallel=False,
)
CARRIED = (*POD, *ENGINE_OPTIONS, "outputs.value", "parallel")
CANNOT = {
    "pipeline": NoSupport("never", "a toy holds no other toy", "write one pipeline"),
    "cache": NoSupport("not yet", "a toy forgets", "run it again"),
}
# The rest is refused, what is new in the vocabulary too.
REST = {
    name: NoSupport("not yet", "a toy is small", "leave it out")
    for name in VOCABULARY
    if name not in (*CARRIED, *CANNOT, "timeout")
}
CAPABILITIES = capabilities(
    carried=CARRIED, weaker={"timeout": PartialSupport("a toy clock is slow")}, cannot=CANNOT | REST
)


@dataclass(frozen=True, slots=True)
class ToyOptions:
    """What may be asked of a toy."""

    color: str | None = option("--color", "the color of the box", metavar="NAME")
    wheels: bool = option("--wheels", "put wheels on it")


class Toy(Target):
    """One file of pods, and one with what stands on the box."""

    facts = FACTS
    capabilities = CAPABILITIES
    options = ToyOptions
    separator = "---\n"

    def partial_losses(self, request: Request) -> list[Loss]:
        if len(request.pipeline.steps) < 3:
            return []
        return [Loss("toy: a box holds two steps", request.pipeline.where("steps"), "make two boxes", optional=False)]

    def notes(self, request: Request) -> list[Finding]:
        return [Finding("GF305", "a toy is not for children under 3", severity="note")]

    def compile(self, request: Request) -> tuple[Artifact, ...]:
        import toy_sdk  # type: ignore[import-not-found]  # the test gives one, or none

        options = request.options_as(ToyOptions)
        pods = {
            name: pod_for(request.pipeline, name, request.site, engine=Engine(FACTS.supervisor, FACTS.outputs_dir))
            for name in request.pipeline.steps
        }
        text = "".join(f"# {line}\n" for line in header(request))
        box = f"color: {options.color}\nwheels: {options.wheels}\nsdk: {toy_sdk.VERSION}\n"
        return Artifact(f"{request.pipeline.name}.yaml", text + emit(pods)), Artifact("box.yaml", text + box)


target = Toy()
