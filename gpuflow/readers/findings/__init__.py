"""What the author of a document of another tool may not know, and what the document silences of it.

Every demand that a reader makes gets such a source (`Foreign.demand` attaches it), so that `check` has these findings
in its report and `demand` prints them. A rule is a function from a `Subject` to findings; `RULES` is the list.
"""

from gpuflow.readers.findings.rules import ForeignSource
from gpuflow.readers.findings.subject import Subject

__all__ = ["ForeignSource", "Subject"]
