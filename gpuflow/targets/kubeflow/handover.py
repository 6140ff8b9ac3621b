"""How a step's outputs reach KFP.

An output with a `kind` is an artifact of the task under its own name, so that ML Metadata has it and other components
take it. Its URI, which gpuflow's own steps read, is a parameter beside it: kfp gives every output of a component a name
of its own, be it a parameter or an artifact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuflow.spec.step import Step
from gpuflow.targets.kubeflow.own_words import task_words

TASK = "{{$}}"
"""What KFP's launcher replaces with all it knows of a task: where artifacts go, and where it reads about them."""


@dataclass(frozen=True, slots=True)
class Handover:
    """The parameter of each output, the kind of those that are artifacts, and whose files KFP keeps too."""

    keys: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """The options of the supervisor that say it."""
        if not self.keys:
            return []
        told = [f"--output-kind={name}={kind}" for name, kind in self.kinds.items()]
        told += [f"--hand-over={name}" for name in self.files]
        return [
            *(f"--deliver={name}={{{{$.outputs.parameters['{key}'].output_file}}}}" for name, key in self.keys.items()),
            *(told and [*told, f"--kubeflow={TASK}"]),
        ]


NOTHING = Handover()
"""That of a step without outputs."""


def handover(step: Step, *, alone: bool = False) -> Handover:
    """What a step hands over. `alone`: in a hand-written pipeline, where KFP's own components may read its files."""
    if not step.outputs:
        return NOTHING
    said = task_words(step).hand_over
    files = alone if said is None else said
    kinds = {name: output.kind for name, output in step.outputs.items() if output.kind is not None}
    keys = {name: f"{name}-uri" if name in kinds else name for name in step.outputs}  # no output has '-' in its name
    return Handover(keys, kinds, tuple(kinds) if files else ())
