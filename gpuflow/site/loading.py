"""From a file or a preset's name to a site. `extends` names what it builds on; own keys win, maps are merged."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpuflow import files, yaml_tree
from gpuflow.catalog.lookup import UnknownGpu, model
from gpuflow.errors import Finding, GpuflowError, Where, did_you_mean, fail
from gpuflow.site.model import Site
from gpuflow.spec.hardware import form_problem
from gpuflow.spec.loading import read_bytes, require_kind
from gpuflow.spec.problems import problems
from gpuflow.spec.source import Source

_PRESETS = Path(__file__).parent / "presets"


def presets() -> tuple[str, ...]:
    """The names of the sites that come with gpuflow."""
    return tuple(sorted(path.stem for path in _PRESETS.glob("*.yaml")))


def load_site(name: str) -> Site:
    """A site from a file, or a preset by its name."""
    if name in presets():
        return _preset(name)
    if not Path(name).exists() and "/" not in name and not name.endswith((".yaml", ".yml", ".json")):
        raise fail(
            "GF212", f'"{name}" is neither a preset nor a file', where=Where(name), hint=did_you_mean(name, presets())
        )
    return _site(_tree(Path(name), ()), name)


@cache
def _preset(name: str) -> Site:
    file = _PRESETS / f"{name}.yaml"
    return _site(_tree(file, ()), f"preset {name}")


def _tree(file: Path, opened: tuple[str, ...]) -> yaml_tree.Map:
    own = Path(os.path.realpath(file)).parent if file.parent == _PRESETS else None  # an installer may have linked it
    raw = read_bytes(file, named=not opened, root=own)
    tree = yaml_tree.parse(raw, str(file))
    require_kind(tree, "Site", str(file))
    base = tree.pop("extends", None)
    if base is None:
        return tree  # type: ignore[no-any-return]  # require_kind has seen that it is a mapping
    where = Where(str(file), tree.value_at["extends"].line, tree.value_at["extends"].column)
    if not isinstance(base, str):
        raise fail("GF212", "extends takes the name of a preset or of a file", where=where)
    yaml_tree.require_plain_name(base, where)
    path = _PRESETS / f"{base}.yaml" if base in presets() else file.parent / base
    if base not in presets():
        _stay(path, file, where)
    if base not in presets() and not path.exists():
        raise fail(
            "GF212",
            f'"{base}" is neither a preset nor a file next to this one',
            where=where,
            hint=did_you_mean(base, presets()),
        )
    opened = (*opened, str(file))
    if path.resolve() in [Path(name).resolve() for name in opened]:
        raise fail("GF212", f"sites extend each other: {' -> '.join((*opened, str(path)))}", where=where)
    return merged(_tree(path, opened), tree)


def _stay(path: Path, file: Path, where: Where) -> None:
    """Refuse a base outside the bounds of the site that names it, be it by an absolute path, `..` or a link."""
    try:
        files.within(path, files.bounds_of_references(file))
    except OSError as refusal:
        files.refuse_outside(refusal, path, where)


def merged(base: yaml_tree.Map, top: yaml_tree.Map, base_file: str = "", top_file: str = "") -> yaml_tree.Map:
    """`top` over `base`, mapping by mapping, each key keeping its file and place; null removes what was inherited."""
    result = yaml_tree.Map(top.spot)
    result.file = top.file
    for key in (*base, *(key for key in top if key not in base)):
        own = key in top
        if own and top[key] is None and key in base:
            continue
        source = top if own else base
        files = [part.file_at.get(key) or part.file or file for part, file in ((base, base_file), (top, top_file))]
        value: Any = source[key]
        if own and isinstance(value, yaml_tree.Map) and isinstance(base.get(key), yaml_tree.Map):
            value = merged(base[key], value, *files)
        result[key] = value
        result.key_at[key], result.value_at[key] = source.key_at[key], source.value_at[key]
        result.file_at[key] = files[own]
    return result


def _site(tree: yaml_tree.Map, shown: str) -> Site:
    try:
        site = Site.model_validate(tree)
    except ValidationError as error:
        raise GpuflowError(
            Finding(code, message, yaml_tree.where_of(tree, path, key=key), hint)
            for code, message, hint, path, key in problems(error, Site)
        ) from None
    findings = []
    for name, nodes in site.gpu.models.items():
        place: tuple[str, ...] = ("gpu", "models", name)
        try:
            owner = model(name)
        except UnknownGpu as refusal:
            findings.append(Finding("GF201", str(refusal), yaml_tree.where_of(tree, place, key=True)))
            continue
        for form in nodes.forms:
            refused = form_problem(owner, form)
            if refused is not None:
                where = yaml_tree.where_of(tree, (*place, "forms", form), key=True)
                findings.append(Finding("GF204", refused[0], where, refused[1]))
    if findings:
        raise GpuflowError(findings)
    site._source = Source(shown, lambda path, key: yaml_tree.where_of(tree, path, key=key))
    return site
