"""Step + site = one plain pod: `pod_for(pipeline, "train", site)`."""

from gpuflow.pod.build import pod_for
from gpuflow.pod.notes import pod_notes
from gpuflow.pod.spelling import Readable, Spelling, spelled
from gpuflow.pod.supervision import Engine, is_supervised

__all__ = ["Engine", "Readable", "Spelling", "is_supervised", "pod_for", "pod_notes", "spelled"]
