"""Step + site = one plain pod: `pod_for(pipeline, "train", site)`."""

from gpuflow.pod.build import pod_for
from gpuflow.pod.notes import pod_notes
from gpuflow.pod.spelling import ReadableSpelling, Spelling, spell_text
from gpuflow.pod.supervision import Engine, is_supervised

__all__ = ["Engine", "ReadableSpelling", "Spelling", "is_supervised", "pod_for", "pod_notes", "spell_text"]
