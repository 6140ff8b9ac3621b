"""What gpuflow says when something is wrong: findings with a stable code, a place, and the way out.

Every message a user can meet is a `Finding`. The codes live in one table (`gpuflow.core.codes`); `gpuflow explain CODE`
and the reference page are printed from it. A finding renders as one line plus its hint:

    train.yaml:14:13: GF112 step "train": memory request 112Gi is above its limit 96Gi
        lower memory.request or raise memory.limit
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from gpuflow.core import printable

MANY = 100
MOST_NAMES = 5
"""So many steps are named in a sentence."""
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Where:
    """A place: a file with 1-based line and column, and the step it belongs to. Any part may be unknown."""

    file: str | None = None
    line: int | None = None
    column: int | None = None
    step: str | None = None

    def __str__(self) -> str:
        parts = [printable.line(self.file or "<input>")]
        if self.line is not None:
            parts.append(str(self.line))
            parts.append(str(self.column or 1))
        return ":".join(parts)


@dataclass(frozen=True, slots=True)
class Finding:
    """One message for the user. `kubernetes` holds the API server's own message, if there is one."""

    code: str
    message: str
    where: Where = field(default_factory=Where)
    hint: str | None = None
    severity: Severity = "error"
    kubernetes: str | None = None

    def render(self) -> str:
        """The finding as it is printed: place, code and message, then the way out, indented."""
        lines = [f"{self.where}: {self.code} {printable.line(self.message)}"]
        if self.kubernetes:
            lines.append(f"    Kubernetes says: {printable.line(self.kubernetes)}")
        lines += [f"    {line}" for line in printable.shown_lines(self.hint)]
        return "\n".join(lines)

    def document(self) -> dict[str, Any]:
        """The finding as the JSON that programs read."""
        where = {"file": self.where.file, "line": self.where.line, "column": self.where.column, "step": self.where.step}
        return {
            "code": self.code,
            "severity": self.severity,
            "where": where,
            "message": self.message,
            "hint": self.hint,
            "kubernetes": self.kubernetes,
        }

    def in_file(self, file: str) -> Finding:
        """The same finding, placed in a file when it has none yet."""
        return self if self.where.file else replace(self, where=replace(self.where, file=file))


class Problem(NamedTuple):
    """What a rule found. Its code and its severity are the rule's."""

    message: str
    where: Where
    hint: str | None = None
    kubernetes: str | None = None


Context = TypeVar("Context")


@dataclass(frozen=True, slots=True)
class Rule(Generic[Context]):
    """A function that looks at a context for what its code is about. Each family of rules is a tuple of them, in the
    order of a report."""

    find: Callable[[Context], Iterable[Problem | Finding]]
    codes: tuple[str, ...]
    """The first is that of its `Problem`s. None: it passes on what others found."""
    severity: Severity

    def __call__(self, context: Context) -> Iterator[Finding]:
        for each in self.find(context):
            if isinstance(each, Problem):
                yield Finding(self.codes[0], each.message, each.where, each.hint, self.severity, each.kubernetes)
            else:
                yield each


def rule(
    *codes: str, severity: Severity = "warning"
) -> Callable[[Callable[[Context], Iterable[Problem | Finding]]], Rule[Context]]:
    """`@rule("GF761")` makes a rule of the function below it. One that has several codes, or whose severity depends,
    yields whole findings."""
    return lambda find: Rule(find, codes, severity)


class GpuflowError(Exception):
    """One or more findings that stop the work. Bad input or misuse: exit code 2."""

    exit_code = 2

    def __init__(self, findings: Finding | Iterable[Finding]) -> None:
        self.findings: tuple[Finding, ...] = (findings,) if isinstance(findings, Finding) else tuple(findings)
        super().__init__("\n".join(finding.render() for finding in self.findings))


class Unsound(GpuflowError):
    """A document that breaks rules. Its content is kept, so that further faults can be found."""

    def __init__(self, findings: Iterable[Finding], document: Any, taken: Sequence[tuple[str | int, ...]] = ()) -> None:
        super().__init__(findings)
        self.document = document
        self.taken = taken
        """The places of what had the wrong shape, and is not in the document."""


class EnvironmentFailure(GpuflowError):
    """The environment failed, not the input: a missing extra, no permission, no network. Exit code 3."""

    exit_code = 3


def fail(code: str, message: str, *, hint: str | None = None, where: Where | None = None) -> GpuflowError:
    """A one-finding error, ready to raise."""
    return GpuflowError(Finding(code, message, where or Where(), hint))


def warning(
    code: str, message: str, where: Where, hint: str | None = None, *, kubernetes: str | None = None
) -> Finding:
    """A finding that stops nothing, and that nobody should pass over."""
    return Finding(code, message, where, hint, "warning", kubernetes)


def install_line(extra: str) -> str:
    """How to install gpuflow with an extra: from a copy that the user trusts, never from an index by its bare name."""
    return (
        f'python -m pip install "gpuflow[{extra}] @ git+URL@COMMIT"'
        " (the URL of your copy of gpuflow, and a commit of it)"
    )


def list_names(names: Sequence[str], noun: str = "step") -> str:
    """`step "a"`, `steps a, b`, `steps a, b, c, d, e and 7 more`."""
    return f'{noun} "{names[0]}"' if len(names) == 1 else f"{noun}s {join_names(names)}"


def join_names(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """`a, b`, `a, b, c, d, e and 7 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _close_candidates(word: str, known: set[str]) -> Iterable[str]:
    """Comparing is slow, so among very many words only those that begin alike and are about as long are compared."""
    if len(known) <= MANY:
        return known
    alike = (name for name in known if name[:2] == word[:2] and abs(len(name) - len(word)) <= 2)
    return sorted(alike, key=lambda name: (-sum(map(str.__eq__, name, word)), name))[:MANY]


def did_you_mean(word: str, known: Iterable[str], *, before: str = "") -> str | None:
    """`did you mean "train"?` when something known is close to `word`; otherwise the known words when they are few.

    `before`: what stands before each of them where the user writes it, such as a folder.
    """
    everything = set(known)
    candidates: Sequence[str] = sorted(_close_candidates(word, everything))
    close = difflib.get_close_matches(word, candidates, n=3, cutoff=0.6)
    if not close:
        folded = {name.replace("-", "").replace("_", "").lower(): name for name in candidates}
        same = folded.get(word.replace("-", "").replace("_", "").lower())
        close = [same] if same else []
    if close:
        return "did you mean " + " or ".join(f'"{before}{name}"' for name in close) + "?"
    if 0 < len(everything) <= 12:
        return "known here: " + ", ".join(before + name for name in candidates)
    return None
