"""The outputs of a gang: rank 0 says them in its last words, and we put them where the engine looks."""

from __future__ import annotations

import hashlib
import os

from gpuflow.runtime import farewell, outputs
from gpuflow.runtime.object_state import said
from gpuflow.runtime.outputs import BadOutput
from gpuflow.runtime.records import Kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuflow.runtime.options import Options
    from gpuflow.runtime.outputs import Output

NOTHING = "rank 0 left no outputs: nobody knows that its work is done"


def deliver(options: Options, rank_0: Mapping[str, Any] | None) -> str | None:
    """Put the declared outputs where the engine looks; why not, when rank 0 has not said them."""
    declared = outputs.parse(options.output)
    if not declared:
        return None
    kept = read(declared, rank_0, options.container)
    if kept is None:
        return NOTHING
    if options.engine == "kubeflow":
        for output in declared:
            value = kept[output.name].value
            if value is not None:
                outputs.number_for_kubeflow(output, value)
    if options.outputs_dir:
        os.makedirs(options.outputs_dir, exist_ok=True)
    outputs.deliver(kept, options.engine, options.outputs_dir or "", outputs.pairs(options.deliver, "deliver"))
    return None


def read(declared: Sequence[Output], rank_0: Mapping[str, Any] | None, container: str) -> dict[str, Kept] | None:
    """The declared outputs in rank 0's last words; None when it left no word, BadOutput when they are not as declared.

    Of a file or directory the words say where it is kept.
    """
    given = _said(rank_0, container)
    if given is None:
        return None
    kept = {}
    for output in declared:
        if given.get(output.name) is None:
            raise BadOutput(f'rank 0 left no output "{output.name}"')
        text = said(given[output.name])
        digest = hashlib.sha256(text.encode()).hexdigest()
        if output.is_kept:
            kept[output.name] = Kept(type=output.kind, uri=text, sha256=digest)
        else:
            outputs.typed(output, text)
            kept[output.name] = Kept(type=output.kind, value=text, sha256=digest)
    return kept


def _said(pod: Mapping[str, Any] | None, container: str) -> dict[str, Any] | None:
    states = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    for status in [each for each in states if each.get("name") == container] or list(states)[:1]:
        ended = (status.get("state") or {}).get("terminated") or {}
        facts = farewell.parse(ended.get("message")) if ended.get("exitCode") == 0 else None
        given = (facts or {}).get("outputs")
        return given if isinstance(given, dict) else None
    return None
