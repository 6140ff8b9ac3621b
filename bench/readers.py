"""Documents of other tools, Argo's examples and workflows of 10,000 tasks: `python bench/readers.py`.

CPU seconds, which other work on the machine does not change. The peer parses the same text with PyYAML's C loader and
does nothing with it. The examples stand beside the repository; without them only the large workflows are read.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from measuring import arguments, seconds

from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError
from gpuflow.demands import Demand
from gpuflow.readers import Options, documents_of, foreign_in
from gpuflow.site import Site

EXAMPLES = Path(__file__).resolve().parents[2] / "shared" / "corpora" / "argo-workflows" / "examples"
TASKS, FEW_TASKS, WIDTH = 10_000, 200, 100
FEW_EXAMPLES = 10
HEAD = """apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: bench}
spec:
  entrypoint: main
  parallelism: 500
  templates:
  - name: main
    dag:
      tasks:
"""
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def one_template(tasks: int) -> str:
    """Tasks that all call one template, each with an argument of its own."""
    lines = [HEAD]
    for number in range(tasks):
        lines.append(f"      - {{name: t{number}, template: work, dependencies: [{_before(number)}], ")
        lines.append(f"arguments: {{parameters: [{{name: part, value: {number}}}]}}}}\n")
    lines.append("  - name: work\n    inputs: {parameters: [{name: part}]}\n")
    lines.append(_container("{{inputs.parameters.part}}"))
    return "".join(lines)


def own_templates(tasks: int) -> str:
    """Tasks that each have a template of their own."""
    lines = [HEAD]
    for number in range(tasks):
        lines.append(f"      - {{name: t{number}, template: work-{number}, dependencies: [{_before(number)}]}}\n")
    for number in range(tasks):
        lines.append(f"  - name: work-{number}\n{_container(str(number))}")
    return "".join(lines)


def one_loop() -> str:
    """A thousand million items of one task."""
    return (
        HEAD
        + "      - {name: each, template: work, withSequence: {count: 1000000000}}\n  - name: work\n"
        + _container("x")
    )


def _before(number: int) -> str:
    layer = number // WIDTH - 1
    needs = {layer * WIDTH + (number * step) % WIDTH for step in (1, 3, 7)} if layer >= 0 else ()
    return ", ".join(f"t{need}" for need in sorted(needs))


def _container(part: str) -> str:
    resources = "{requests: {cpu: 1, memory: 2Gi}, limits: {nvidia.com/gpu: 1}}"
    return f"    container: {{image: i, command: [work, '{part}'], resources: {resources}}}\n"


def answered(text: str, file: str, site: Site) -> int:
    """Read, understood, and its peaks worked out; how many objects that was."""
    active, _ = foreign_in(documents_of(yaml_tree.parse_all(text, file), file))
    for each in active:
        found = each.demand(Options(site))
        if isinstance(found, Demand):
            assert found.peak is not None
    return len(active)


def over_examples(site: Site, most: int | None) -> None:
    files = sorted(EXAMPLES.rglob("*.yaml"))[:most]
    texts = {str(file): file.read_text(encoding="utf-8") for file in files}

    def all_of_them() -> None:
        for file, text in texts.items():
            try:
                answered(text, file, site)
            except GpuflowError:
                continue

    def parsed() -> None:
        for text in texts.values():
            list(yaml.load_all(text, Loader=Loader))

    all_of_them()  # what is kept from one file to the next is there
    took, peer = seconds(all_of_them), seconds(parsed)
    rates = f"{len(texts) / took:,.0f} files per second, PyYAML alone {len(texts) / peer:,.0f}"
    print(f"{len(texts)} examples of Argo: {rates}")


def main() -> None:
    smoke = arguments(__doc__).parse_args().smoke
    tasks = FEW_TASKS if smoke else TASKS
    site = Site.load("nvidia")
    if EXAMPLES.is_dir():
        over_examples(site, FEW_EXAMPLES if smoke else None)
    else:
        print("the examples of Argo are not here")
    print(f"{'workflow':<34}{'MB':>6}{'seconds':>10}{'PyYAML alone':>14}")
    for name, text in (
        (f"{tasks:,} tasks, one template", one_template(tasks)),
        (f"{tasks:,} tasks, as many templates", own_templates(tasks)),
        ("a loop of 1,000,000,000 items", one_loop()),
    ):
        took = seconds(lambda text=text: answered(text, "bench.yaml", site))  # type: ignore[misc]  # the loop variable is bound here
        peer = seconds(lambda text=text: yaml.load(text, Loader=Loader))  # type: ignore[misc]  # the loop variable is bound here
        print(f"{name:<34}{len(text) / 1e6:>6.1f}{took:>10.2f}{peer:>14.2f}")


if __name__ == "__main__":
    main()
