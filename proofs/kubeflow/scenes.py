"""What a run does, beyond the shape of its pods: values, conditions, loops, ends, retries, times, volumes, text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpuflow.core import yaml_tree

from .case import Case, Complaints, Seen

PIPELINES = Path(__file__).with_name("pipelines")
WORDS = (
    "{{workflow.name}}", "{{=1+1}}", "$(NAME)", "$$", "$$$$", "$", "$(HOME)", "$(KFP_POD_NAME)", "${X}", "a { b",
    "it's \"so\"",
)  # fmt: skip
Rule = Callable[[Seen], str | None]


def document(file: str, name: str = "") -> dict[str, Any]:
    """A pipeline of this folder, under another name when one is given."""
    path = PIPELINES / f"{file}.yaml"
    # gpuflow's own reader: to PyYAML the key `on` is true.
    found: dict[str, Any] = json.loads(json.dumps(yaml_tree.parse(path.read_bytes(), str(path))))
    return {**found, "name": name or file}


def expect(*rules: Rule) -> Callable[[Seen], Complaints]:
    return lambda seen: [words for rule in rules if (words := rule(seen))]


def says(step: str, *lines: str) -> Rule:
    """Every one is a line that some pod of the step printed."""

    def rule(seen: Seen) -> str | None:
        printed = seen.said(step).splitlines()
        lacking = [line for line in lines if line not in printed]
        return f"{step} did not print {lacking}; it printed {printed[:20]}" if lacking else None

    return rule


def silent(step: str, *lines: str) -> Rule:
    """None of them is a line that some pod of the step printed."""

    def rule(seen: Seen) -> str | None:
        printed = seen.said(step).splitlines()
        return f"{step} printed {printed}" if any(line in printed for line in lines) else None

    return rule


def holds(step: str, *parts: str) -> Rule:
    """Each is part of what the step printed."""

    def rule(seen: Seen) -> str | None:
        lacking = [part for part in parts if part not in seen.said(step)]
        return f"{step} did not print {lacking}" if lacking else None

    return rule


def pods(**counts: int) -> Rule:
    """So many pods of each step."""

    def rule(seen: Seen) -> str | None:
        found = {step: seen.count(step) for step in counts}
        return f"pods {found}, not {counts}" if found != counts else None

    return rule


def ended_for(step: str, reason: str) -> Rule:
    def rule(seen: Seen) -> str | None:
        found = [pod["status"].get("reason") for pod in seen.pods.get(step, ())]
        return None if reason in found else f"{step} ended for {found}, not {reason}"

    return rule


def _run_id(seen: Seen) -> str | None:
    return None if seen.run["run_id"] in seen.said("always") else "the exit step did not get the run's id"


def scene(name: str, *rules: Rule, file: str = "", **more: Any) -> Case:
    return Case(name, document(file or name, name), check=expect(*rules), **{"compares": False, **more})


def flow() -> Iterator[Case]:
    """Values, loops, conditions, sub-pipelines, ends."""
    yield scene(
        "flow",
        says("tell", "you", "2e-05", "12000000", "1.25e-05", "true"),
        says("over", "name=a b", "name=c"),
        says("sum", "all=[10,20]"),
        pods(each=2, over=2),
        arguments={"who": "you"},
        constructs=("params", "outputs.value", "for_each.param", "for_each.output"),
    )
    yield scene(
        "conditions",
        says("ship", "shipped"),
        says("after", "after"),
        says("items", "2", "3"),
        silent("items", "1"),
        pods(reject=0, behind=0, items=2),
        constructs=("when", "when.item"),
    )
    yield scene(
        "sub-pipelines",
        says("sum", "totals=[100,200]"),
        says("read", "p", "q", '{"a":1}'),
        pods(read=4, make=2),
        constructs=("pipeline", "for_each.parallel"),
    )
    yield scene(
        "ends-badly",
        says("alarm", "ALARM"),
        _run_id,
        pods(never=0, bad=1, cheer=0),
        state="FAILED",
        constructs=("exit.failure", "exit.success", "exit.always"),
    )
    yield scene(
        "ends-well",
        says("cheer", "CHEER"),
        pods(alarm=0),
        constructs=("exit.failure", "exit.success"),
    )

    for how, state, value in (("0", "SUCCEEDED", "7"), ("3", "FAILED", "-1")):
        yield scene(
            f"exit-outputs-{how}",
            says("tell", value, "-2" if how == "3" else "8"),
            pods(alarm=int(how == "3"), after=int(how == "0")),
            *([says("alarm", value)] if how == "3" else []),
            file="exit-outputs",
            arguments={"how": how},
            state=state,
            constructs=("exit.outputs",),
        )


def storage() -> Iterator[Case]:
    """Secrets, settings, claims: what a step reads is what was put there."""
    yield scene(
        "claims-of-a-run",
        says("use", "from-fill"),
        says("below", "there"),
        says("keep", "from-fill"),
        constructs=("claims", "volumes.new_claim", "volumes.sub_path"),
    )
    yield scene(
        "secrets",
        says("read", "env=x", "map=x", "wrote"),
        constructs=("env.secret", "env.config_map", "volumes.secret", "volumes.config_map", "volumes.empty_dir", "shm"),
    )
    yield scene(
        "identity",
        holds("own", "Uid:\t7\t7", "Gid:\t8\t8"),
        holds("usual", "Uid:\t1000\t1000"),
        constructs=("security.identity",),
    )


def times() -> Iterator[Case]:
    """Timeouts and deadlines."""
    yield scene(
        "timeout",
        pods(slow=1, after=0),
        ended_for("slow", "DeadlineExceeded"),
        state="FAILED",
        constructs=("timeout",),
    )
    yield scene("timeout-supervised", pods(slow=1), state="FAILED", constructs=("timeout",))
    yield scene("deadline-passes", pods(slow=1), state="FAILED", constructs=("deadline",))


def retries() -> Iterator[Case]:
    """A task's own retries, where the installation is set up for them."""
    yield scene("retry-always", pods(twice=3, once=2), constructs=("retry.failures", "retry.any"))
    yield scene("retry-spent", pods(bad=3), state="FAILED", constructs=("retry.failures", "retry.backoff"))
    yield scene("no-retry", pods(bad=1), state="FAILED", constructs=("retry.any",))


def retries_of(settings: str) -> Iterator[Case]:
    """The same under other settings."""
    if settings == "stock":
        # As its manifests install it, KFP 2.17.0 repeats no failed pod, whatever a task says.
        yield scene("retry-stock", pods(twice=1, once=1), state="FAILED", settings=settings)
    elif settings == "before":
        yield scene("retry-before", pods(twice=3, once=2), settings=settings)


def text() -> Iterator[Case]:
    """Words that three programs read on their way."""
    yield scene(
        "text",
        says("words", *WORDS),
        says("script", "two: $$ ref: $(NAME) {{x}}", "x $(NAME) $$ y {{z}}", "number 2"),
        constructs=("text.braces", "script"),
    )
    yield scene(
        "text-values",
        # A parameter passes the kubelets of the run's driver and of the step, an output that of the step.
        says("tell", "a $ b secret-value d $(date) $", "$$ secret-value"),
        says("here", "/data/a$$b $(HOME)"),
        says("asks", "asked"),
        pods(asks=1, other=0),
        arguments={"who": "a $$ b $(NAME) d $(date) $$$$"},
        constructs=("working_dir", "when"),
    )
    yield scene(
        "not-a-number",
        holds("writes", "the output \"loss\" of type float is 'nan': JSON has no NaN and no infinity"),
        pods(reads=0),
        state="FAILED",
    )


def all_scenes() -> list[Case]:
    """Everything that runs under the settings that gpuflow asks an administrator for."""
    return [*flow(), *storage(), *times(), *retries(), *text()]
