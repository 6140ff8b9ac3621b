"""A case: a pipeline, what the checker is shown of a cluster, and the worlds that this may be."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import gpuflow
from gpuflow.spec.pipeline import Pipeline

Manifest = dict[str, Any]
NAMESPACE = "team-a"
OTHERS = "others"
ENGINES = ("none", "argo", "airflow", "kubeflow")


@dataclass(frozen=True)
class Case:
    """What is shown decides when there is one world; with several, each of them may be the real one."""

    seed: str
    families: tuple[str, ...]
    pipeline: Manifest
    engine: str
    shown: tuple[Manifest, ...]
    worlds: tuple[tuple[Manifest, ...], ...] = ()
    """The objects of each world; none: exactly what is shown."""
    runs: int = 1
    """What the checker is told about runs side by side."""
    world_runs: tuple[int, ...] = ()
    """How many runs meet, for each world; none: what the checker is told."""
    kept: tuple[str, ...] = ()
    """What becomes of pods that succeeded, for each world: kept, collected, deleted; none: as the engine does."""
    selector: Manifest = field(default_factory=dict)
    """What an admission plug-in of the namespace adds to the nodeSelector of every pod, in the last of the worlds."""
    hidden: tuple[str, ...] = ()
    """Kinds that nobody listed."""
    more_worlds: bool = False
    """Whether there are worlds beside those that are looked at."""
    beside: Manifest = field(default_factory=dict)
    """Another pipeline that runs at the same time."""

    @classmethod
    def read(cls, text: str) -> Case:
        """The case in a file or a line."""
        made = json.loads(text)
        for name in ("families", "shown", "world_runs", "kept", "hidden"):
            made[name] = tuple(made.get(name, ()))
        made["worlds"] = tuple(tuple(each) for each in made.get("worlds", ()))
        return cls(**made)

    def written(self, indent: int | None = None) -> str:
        """The case as a file or a line."""
        plain = {name: value for name, value in asdict(self).items() if value not in ((), {}, [], False)}
        return json.dumps(plain, indent=indent)

    @property
    def digest(self) -> str:
        """The same for the same case."""
        return hashlib.sha256(self.written().encode()).hexdigest()[:12]

    @cached_property
    def spec(self) -> Pipeline:
        """The pipeline, read by gpuflow."""
        return gpuflow.loads(json.dumps(self.pipeline), "p.yaml")

    @cached_property
    def specs(self) -> tuple[Pipeline, ...]:
        """All the pipelines that run at the same time."""
        second = (gpuflow.loads(json.dumps(self.beside), "q.yaml"),) if self.beside else ()
        return (self.spec, *second)

    @property
    def is_open(self) -> bool:
        """Whether what is shown leaves worlds open that nobody looks at."""
        return self.more_worlds or bool(self.hidden)

    def with_shown(self, shown: Iterable[Manifest]) -> Case:
        """The same with other objects, where one world is shown whole."""
        return replace(self, shown=tuple(shown))
