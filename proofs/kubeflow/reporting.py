"""What was run, in tables: the figures of a proof, and one row for each construct of the table of capabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuflow.targets.capabilities import NoSupport, PartialSupport
from gpuflow.targets.kubeflow.facts import CAPABILITIES

from .constructs import ELSEWHERE

Result = Mapping[str, Any]


def figures(found: Sequence[Result]) -> list[str]:
    """The figures of one proof."""

    def total(key: str) -> int:
        return sum(result.get(key) or 0 for result in found)

    survived: dict[str, list[int]] = {}
    for result in found:
        for step, row in result.get("steps", {}).items():
            words = result["name"].split("-")
            label = f"{words[1] if words[0] == 'interrupted' else 'always'}: {step}, {'-'.join(words[2:4])}"
            survived.setdefault(label, []).append(int(row["phase"] == "Succeeded"))
    cached = next((result for result in found if result["name"] == "cached-twice"), {})
    return [
        f"pipelines run             {len(found)}, of them {sum(not r['complaints'] for r in found)} as they should",
        f"pods of steps             {total('pods')}, and {total('drivers')} of KFP's own",
        f"pods compared             {total('compared')}, equal {total('equal')}, "
        f"differences {sum(len(r.get('differences', ())) for r in found)}",
        f"second run, pods of steps {cached.get('second', 'not run')}",
        f"interruptions injected    {total('interruptions')}",
        *(f"  {label:40} {sum(ends)} of {len(ends)} went on to succeed" for label, ends in sorted(survived.items())),
    ]


def by_construct(found: Sequence[Result]) -> Iterator[str]:
    """A Markdown table: what the table says of each construct, what showed it, and what came of it."""
    yield "| construct | the table says | shown by | what happened |"
    yield "|---|---|---|---|"
    for construct, answer in sorted(CAPABILITIES.items()):
        said = (
            "cannot" if isinstance(answer, NoSupport) else "weaker" if isinstance(answer, PartialSupport) else "carried"
        )
        shown = [result for result in found if construct in result.get("constructs", ())]
        if shown:
            yield f"| `{construct}` | {said} | {', '.join(r['name'] for r in shown)} | {_came_of(shown)} |"
        elif said != "cannot":
            yield f"| `{construct}` | {said} | {ELSEWHERE.get(construct, 'not run')} | – |"


def _came_of(shown: Sequence[Result]) -> str:
    wrong = [words for result in shown for words in (*result["complaints"], *result.get("differences", ()))]
    compared, equal = (sum(result.get(key) or 0 for result in shown) for key in ("compared", "equal"))
    states = ", ".join(dict.fromkeys(result["state"] for result in shown))
    pods = f"; {equal} of {compared} pods equal" if compared else ""
    notes = "; ".join(dict.fromkeys(result["note"] for result in shown if result.get("note")))
    words = f"; {notes}" if notes else ""
    return (
        f"{'as said' if not wrong else 'NOT as said'}: {states}{pods}{words}"[:300].replace("|", "/").replace("\n", " ")
    )
