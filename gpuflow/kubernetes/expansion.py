"""Kubernetes rewrites `$(VAR)` and `$$` in commands, arguments and environment values. User text must arrive unchanged.

The rule of the kubelet: `$$` becomes `$`; `$(NAME)` is replaced when NAME is known and kept when it is not; any other
`$` stays. So a `$` needs doubling exactly where another `$` or a `(` follows it, and at the end of a literal that is
glued to something only known at run time. Before a letter outside ASCII it is doubled too: kubelets of older releases
read one byte after the `$` where the letter has several, and garble it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_RUN = re.compile(r"\$+")
_EXPANSION = re.compile(r"\$(\$|\(([^)]*)\))")
"""Whatever stands between the parentheses is a name; where nothing is called so, all of it stays, a `$$` in it too."""


def escape(text: str, *, glued: bool = False) -> str:
    """`text` such that Kubernetes' expansion gives back exactly `text`. `glued`: something unknown follows."""
    if "$" not in text:
        return text
    if "$$" not in text and "$(" not in text and text.isascii() and not (glued and text.endswith("$")):
        return text  # each stands alone

    def double(match: re.Match[str]) -> str:
        run, follows = match[0], text[match.end() : match.end() + 1]
        alone = len(run) == 1 and follows != "(" and follows.isascii() and not (glued and not follows)
        return run if alone else run * 2

    return _RUN.sub(double, text)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """What the kubelet makes of a text (Expand in k8s.io/kubernetes/third_party/forked/golang/expansion, 1.36)."""
    return _EXPANSION.sub(lambda found: "$" if found[1] == "$" else variables.get(found[2], found[0]), text)
