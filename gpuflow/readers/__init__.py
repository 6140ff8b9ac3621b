"""Documents that gpuflow did not write, read as demands: Argo, Kubeflow, Kubernetes, and DAGs in Python.

for each in foreign_in(read_documents("workflow.yaml"))[0]:
    each.demand(Options(Site.load("nvidia")))
"""

from gpuflow.formats.documents import Document, Library, documents_of, read_documents
from gpuflow.readers.interface import ForeignObject, Options, PassiveObject, foreign_in, with_parts

__all__ = [
    "Document",
    "ForeignObject",
    "Library",
    "Options",
    "PassiveObject",
    "documents_of",
    "foreign_in",
    "read_documents",
    "with_parts",
]
