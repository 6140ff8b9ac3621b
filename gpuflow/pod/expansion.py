"""Kubernetes rewrites `$(VAR)` and `$$` in commands, arguments and environment values. User text must arrive unchanged.

The rule of the kubelet: `$$` becomes `$`; `$(NAME)` is replaced when NAME is known and kept when it is not; any other
`$` stays. So a `$` needs doubling exactly where another `$` or a `(` follows it, and at the end of a literal that is
glued to something only known at run time. Before a letter outside ASCII it is doubled too: kubelets of older releases
read one byte after the `$` where the letter has several, and garble it.
"""

from __future__ import annotations

import re

_RUN = re.compile(r"\$+")


def escaped(text: str, *, glued: bool = False) -> str:
    """`text` such that Kubernetes' expansion gives back exactly `text`. `glued`: something unknown follows."""

    def double(match: re.Match[str]) -> str:
        run, follows = match[0], text[match.end() : match.end() + 1]
        alone = len(run) == 1 and follows != "(" and follows.isascii() and not (glued and not follows)
        return run if alone else run * 2

    return _RUN.sub(double, text)
