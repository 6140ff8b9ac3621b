"""Step + site = one plain pod: `pod_of(planned)`, or `pod_for(pipeline, "train", site)`."""

from gpuflow.pod.build import pod_for, pod_of
from gpuflow.pod.notes import pod_notes
from gpuflow.pod.spelling import ReadableSpelling, Spelling, spell_text
from gpuflow.pod.supervision import Engine

__all__ = ["Engine", "ReadableSpelling", "Spelling", "pod_for", "pod_notes", "pod_of", "spell_text"]
