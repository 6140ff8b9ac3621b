"""The keyword arguments of a step that stands alone in hand-written engine code: one for each thing it refers to."""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Iterator

from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, RunRef


def keywords_of(step: Step) -> Iterator[tuple[ParamRef | OutputRef, str]]:
    """`{param: lr}` is `lr`, `{output: prepare.shards}` is `shards`; where two would share a name, `prepare_shards`."""
    refs = list(dict.fromkeys(ref for _, ref in step.references() if not isinstance(ref, ItemRef | RunRef)))
    counts = Counter(ref.name for ref in refs)
    for ref in refs:
        is_shared = counts[ref.name] > 1 or keyword.iskeyword(ref.name)
        yield ref, f"{ref.step.replace('-', '_')}_{ref.name}" if isinstance(ref, OutputRef) and is_shared else ref.name
