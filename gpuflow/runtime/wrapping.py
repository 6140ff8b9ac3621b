"""A step's command under the supervisor: the list of words that goes into the container's `command`.

Two deliveries. `image`: gpuflow-run is installed in the image. `config-map`: the one file is mounted, and runs under
the image's own Python; an image without one ends at once with the final code and one sentence. User text travels as
separate words and is never read by the shell.
"""

from __future__ import annotations

from gpuflow.runtime import options as table
from gpuflow.runtime.outcomes import EXIT_FINAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

FILE = "gpuflow-run"
"""The ConfigMap's key, and the name of the file in the mounted directory."""

# No `$(` and no `$$`: Kubernetes and Argo would read them before the shell does.
NEEDS_PYTHON = (
    'if command -v "$0" >/dev/null 2>&1; then exec "$0" "$@"; fi; '
    'm="gpuflow-run: this image has no $0; install Python 3.8 or newer in it, or install gpuflow in the image '
    'and set runtime.delivery: image in the site"; echo "$m" >&2; '
    'if [ -w /dev/termination-log ]; then echo "$m" >/dev/termination-log; fi; '
    f"exit {EXIT_FINAL}"
)


def wrap(
    command: Sequence[str],
    options: Mapping[str, Any],
    *,
    delivery: str = "image",
    mount: str = "/gpuflow/bin",
    python: str = "python3",
) -> list[str]:
    """`command` under `gpuflow-run` with `options` (by option name, `run-id` or `run_id`); None is left out."""
    return delivered([*option_words(options), "--", *command], delivery=delivery, mount=mount, python=python)


def delivered(words: Sequence[str], *, delivery: str, mount: str, python: str) -> list[str]:
    """`gpuflow-run` with these words, as it is delivered."""
    if delivery == "image":
        return [FILE, *words]
    if delivery == "config-map":
        return ["sh", "-c", NEEDS_PYTHON, python, f"{mount.rstrip('/')}/{FILE}", *words]
    raise ValueError(f'delivery "{delivery}" is neither image nor config-map')


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Options as words, `--name=value`, in the order of the table, so that the same options give the same words."""
    given = {name.replace("_", "-"): value for name, value in options.items() if value is not None}
    unknown = sorted(set(given) - {option.name for option in table.TABLE})
    if unknown:
        raise ValueError(f"gpuflow-run has no option --{unknown[0]}")
    words: list[str] = []
    for option in table.TABLE:
        if option.name in given:
            value = given[option.name]
            if option.kind == "flag":
                words += [f"--{option.name}"] if value else []
                continue
            values = value if option.kind == "list" else [value]
            words += [f"--{option.name}={_text(option, item)}" for item in values]
    return words


def _text(option: table.Option, value: Any) -> str:
    if option.kind == "codes" and not isinstance(value, str):
        return ",".join(str(code) for code in value)
    if option.kind in ("span", "every") and isinstance(value, (int, float)):
        return f"{value:g}s"
    return str(value)
