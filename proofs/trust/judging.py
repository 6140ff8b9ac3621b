"""Whether an artifact with hostile text holds what its harmless twin holds, with the text in its place and no more.

Both are read with the reader of their engine: YAML, Python's parser, KFP's protobuf messages, JSON, XML. What is read
must have the same shape; a text may differ only where the twin's holds the harmless word, and must then be the hostile
text in a spelling that the engine, and the kubelet behind it, turn back into it.
"""

from __future__ import annotations

import ast
import json
import re
import tokenize
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any
from xml.etree import ElementTree

import yaml

from gpuflow.core import printable
from gpuflow.runtime.supervise import kube_client
from gpuflow.targets.argo.references import constant, percent_encoded_text
from proofs.trust.compiling import TWINS, Case

HIDDEN_IS_REFUSED = True
"""Whether an artifact must hold no control, direction-changing or invisible character as it is."""
BRACE = "GPUFLOW_BRACE"
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\uffff\U000e0000-\U000e0fff\ud800-\udfff]"
)
DERIVED = re.compile(r"[A-Za-z0-9._/-]*")
"""Names that are made from text, with nothing in them that anybody reads."""
_VARIABLE = re.compile(r"\$(\$|\(([^)]*)\))", re.DOTALL)
RAW_IN_ARGO = (
    ("metadata",),
    ("spec", "arguments"),
    ("spec", "workflowSpec", "arguments"),
    (0, "pipelineInfo"),
    ("spec", "description"),
    ("spec", "pipelineSpec", "pipelineInfo"),
)
"""Where Argo's tags stand as they are written: Argo reads none in metadata, and of the arguments of a run it keeps what
it was given for the steps. tests/targets/argo/test_argo_text.py asks Argo itself."""

OWN_WORDS_OF_ARGO = {"hooks": "hooks", "metrics": "metrics", "pod_metadata": "podMetadata"}
"""What a pipeline says below `engines.argo` in Argo's own language, tags included, and where Argo reads it. The same
text in any other place of the artifact is an injection, and so is a tag of the pipeline's other texts here."""


class Injected(Exception):
    """The artifact holds something else than its twin."""


def judge(case: Case, made: str, twin: str, word: str = TWINS[0]) -> None:
    """Raise `Injected` when hostile text became more than text. `word`: what stands in the twin instead."""
    if HIDDEN_IS_REFUSED and (found := HIDDEN.search(made.replace("\n\0", ""))):
        raise Injected(f"the character {found[0]!r} stands in it as it is")
    words = Words(case.text, word, launcher=case.mode.engine == "kubeflow", own=own_words(case.place.path))
    JUDGES[case.mode.medium](words, made, twin)


def judge_words(text: str, printed: str) -> None:
    """The same of words for people alone, such as those of a refusal."""
    _text(Words(text, TWINS[0]), printed, "")


class Words:
    """What the harmless word may have become."""

    def __init__(self, text: str, twin: str, *, starts: bool = True, launcher: bool = False, own: str = "") -> None:
        self.text = text
        self.twin = twin
        """The harmless word."""
        self.starts = starts
        """Whether what is judged starts containers; a pipeline's own document does not."""
        self.launcher = launcher
        """Whether KFP's launcher reads a command after the kubelet."""
        self.own = own
        """The field of Argo that takes the text in Argo's own language."""

    def same(self, ours: str, twin: str, *, path: tuple[Any, ...] = (), tags: str | None = None) -> None:
        """Whether a text is the twin's with the hostile text in it. `tags`: what opens a tag of the engine."""
        if path[-2:] == ("memoize", "key"):  # it holds a digest of the step, which is another one
            ours, twin = (re.sub("-[0-9a-f]{16}-", "-0-", each, count=1) for each in (ours, twin))
        if ours == twin:
            return
        if is_below(path, RAW_IN_ARGO) or (self.own and self.own in path):
            tags = None
        if tags is not None and ours.count(tags) != twin.count(tags):
            raise Injected(f"{_at(path)}: {ours[:200]!r} has {ours.count(tags)} tags, its twin {twin.count(tags)}")
        if self.twin not in twin:
            if DERIVED.fullmatch(_plain(ours)) and DERIVED.fullmatch(_plain(twin)):
                return
            raise Injected(f"{_at(path)}: {ours[:200]!r} is not {twin[:200]!r}")
        here, there = skeletons(ours, path), skeletons(twin, path)
        if tags is not None and here != there:
            raise Injected(f"{_at(path)}: the expression {here!r:.200} is not {there!r:.200}")
        if self.launcher and "command" in path and _placeholders(ours) != _placeholders(twin):
            raise Injected(f"{_at(path)}: KFP's launcher would replace {expanded(ours)!r:.200}")
        if self.starts and is_word(path):  # the kubelet reads it last, and so it must be spelled for the kubelet
            if expanded(ours) == expanded(twin).replace(self.twin, self.text):
                return
            # A folder with a slash at its end is the same folder.
            folder = self.text.rstrip("/")
            if expanded(ours) == expanded(twin).replace(f"{self.twin}/", f"{folder}/"):
                return
            if self._same_object(expanded(ours), expanded(twin), path):
                return
            raise Injected(f"{_at(path)}: a program gets {expanded(ours)!r:.300}, its twin {expanded(twin)!r:.200}")
        if any(spelled(ours) == spelled(twin).replace(self.twin, self.text) for spelled in (str, expanded)):
            return
        if self._pattern(twin).fullmatch(ours):
            return
        if self._same_json(ours, twin, path, tags):
            return
        if DERIVED.fullmatch(ours) and DERIVED.fullmatch(twin):
            return
        raise Injected(f"{_at(path)}: {ours[:300]!r} is not {twin[:200]!r} with the text in it")

    def _same_object(self, ours: str, twin: str, path: tuple[Any, ...]) -> bool:
        """Whether a word is an object of the cluster, which the launcher of a gang creates: it is read as one."""
        option = "--manifest="
        if not (ours.startswith(f"{option}{{") and twin.startswith(f"{option}{{")):
            return False
        return self._same_json(ours.removeprefix(option), twin.removeprefix(option), path, None)

    def _pattern(self, twin: str) -> re.Pattern[str]:
        """The twin with the text in any spelling, in each place by itself."""
        spellings = "|".join(sorted(map(re.escape, set(self._within())), key=len, reverse=True))
        return re.compile(f"(?:{spellings})".join(map(re.escape, twin.split(self.twin))), re.DOTALL)

    def _within(self) -> Iterator[str]:
        """The text within a literal of another language."""
        yield self.text
        yield printable.line(self.text)  # a name for people
        yield printable.line(self.text.rpartition("/")[2])  # of a path only the last part
        yield constant(self.text)[1:-1]  # Argo's expressions
        yield constant(expanded_back(self.text))[1:-1]
        written = json.dumps(self.text, ensure_ascii=False)[1:-1]
        yield written
        yield written.replace("{{", "{\\u007b")
        yield json.dumps(self.text)[1:-1]
        yield written.replace("\\", "\\\\").replace("'", "\\'")  # JSON as a text of Argo's expressions
        yield expanded_back(self.text)
        yield percent_encoded_text(self.text)  # to a sub-pipeline of Argo's
        yield from (_cel(self.text), _cel_for_driver(self.text))
        yield written.replace("}}", "} }").replace("\\", "\\\\").replace("'", "\\'")

    def _same_json(self, ours: str, twin: str, path: tuple[Any, ...], tags: str | None) -> bool:
        try:
            there, here = json.loads(twin), json.loads(ours)
        except (ValueError, RecursionError):
            return False
        if not isinstance(there, dict | list):
            return False
        self.tree(here, there, path, tags)
        return True

    def tree(self, ours: Any, twin: Any, path: tuple[Any, ...] = (), tags: str | None = None) -> None:
        """The same, of data."""
        if isinstance(twin, dict) and isinstance(ours, dict):
            self._mapping(ours, twin, path, tags)
        elif isinstance(twin, list) and isinstance(ours, list):
            here, there = _without_brace(ours), _without_brace(twin)
            if _is_launcher(here) and _is_launcher(there):
                self._launched(here, there, path, tags)
                return
            if len(here) != len(there):
                raise Injected(f"{_at(path)}: {len(here)} entries, its twin has {len(there)}: {here!r:.200}")
            for index, pair in enumerate(zip(here, there, strict=True)):
                self.tree(*pair, (*path, index), tags)
        elif isinstance(twin, str) and isinstance(ours, str):
            self.same(ours, twin, path=path, tags=tags)
        elif type(ours) is not type(twin) or ours != twin:
            raise Injected(f"{_at(path)}: {ours!r:.200} is not {twin!r:.200}")

    def _launched(self, ours: list[str], twin: list[str], path: tuple[Any, ...], tags: str | None) -> None:
        """The command of a gang's launcher. A text in which something stands for the engine, and be it only a brace,
        travels as a word of its own, so what counts is the object that the launcher makes of all of them."""
        here, there = (sum(word.count(tags) for word in words) if tags else 0 for words in (ours, twin))
        if here != there:
            raise Injected(f"{_at(path)}: its words have {here} tags, those of its twin {there}")
        self.tree(*(_without_object(words) for words in (ours, twin)), path, tags)
        self.tree(*(_object_of(words) for words in (ours, twin)), (*path, "manifest"))

    def _mapping(self, ours: dict[Any, Any], twin: dict[Any, Any], path: tuple[Any, ...], tags: str | None) -> None:
        if self.starts and "image" in ours and any(_USED in word for word in started(ours)) and not _has_brace(ours):
            raise Injected(f"{_at(path)}: {_USED} stands in a container without that variable")
        ours, twin = _without_empty_env(ours), _without_empty_env(twin)
        if len(ours) != len(twin):
            raise Injected(
                f"{_at(path)}: the keys {sorted(map(str, ours))!r:.300}, its twin's {sorted(map(str, twin))!r:.300}"
            )
        left = {key: value for key, value in ours.items() if key not in twin}
        for key, value in twin.items():
            if key in ours:
                self.tree(ours[key], value, (*path, key), tags)
                continue
            for found in list(left):
                try:
                    self.same(str(found), str(key), path=path, tags=tags)
                except Injected:
                    continue
                self.tree(left.pop(found), value, (*path, key), tags)
                break
            else:
                raise Injected(f"{_at(path)}: no key {key!r}, but {sorted(map(str, left))!r:.300}")


_EXPRESSION = re.compile(r"\{\{=(.*?)\}\}", re.DOTALL)
_LITERAL = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)


def skeletons(text: str, path: tuple[Any, ...]) -> list[str]:
    """The expressions in a text without their literals: Argo's in its tags, and the whole of one of KFP's conditions.
    A text that ends its literal changes what is left."""
    found = [text] if path[-1:] == ("condition",) else _EXPRESSION.findall(text)
    return [_LITERAL.sub("''", each) for each in found]


def is_word(path: tuple[Any, ...]) -> bool:
    """Whether a container is started with the text at this place of a pod."""
    if path[-1:] == ("default",):  # of an output that Airflow reads in the run, and spells then
        return False
    return "command" in path or ("env" in path and path[-1] == "value")


def started(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[str]:
    """What the kubelet expands in a container. A key of a Secret, say, it does not."""
    if isinstance(tree, str):
        yield from [tree] if is_word(path) else []
    elif isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from started(value, (*path, key))


def expanded(text: str) -> str:
    """What the kubelet makes of a word, when gpuflow's variable holds a brace, and every other one a secret."""
    return _VARIABLE.sub(lambda found: "$" if found[1] == "$" else "{" if found[2] == BRACE else "<a secret>", text)


def _placeholders(word: str) -> int:
    return len(re.findall(r"\{\{\$(?:\.|\}\})", expanded(word)))


def expanded_back(text: str) -> str:
    """A text that the kubelet would give back."""
    return text.replace("$", "$$").replace("{", f"$({BRACE})")


def _cel(text: str) -> str:
    """A text within a literal of KFP's conditions."""
    return json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")


def _cel_for_driver(text: str) -> str:
    """The same where neither Argo nor a kubelet finds anything in it."""
    return re.sub(r"\$(?=[$(]|[^\x00-\x7f])", r"\\u0024", _cel(text).replace("{{", "{\\u007b"))


def _plain(text: str) -> str:
    """A text without what stands in tags of the engine, which are counted elsewhere."""
    return re.sub(r"\{\{.*?\}\}", "", text, flags=re.DOTALL)


def own_words(path: tuple[Any, ...]) -> str:
    """The field of Argo that takes what stands here in Argo's own language, or nothing."""
    below = [path[index + 2] for index in range(len(path) - 2) if path[index : index + 2] == ("engines", "argo")]
    return OWN_WORDS_OF_ARGO.get(below[0], "") if below else ""


def is_below(path: tuple[Any, ...], roots: tuple[tuple[str, ...], ...]) -> bool:
    return any(path[: len(root)] == root for root in roots)


def _at(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path)) or "the whole"


AS_IT_IS = ["sh", "-c", 'exec "$0" "$@"']
"""How a command is started for KFP whose name `env` would take for an assignment."""


def _without_brace(entries: list[Any]) -> list[Any]:
    for index in range(len(entries) - 2):
        if entries[index : index + 3] == AS_IT_IS:
            entries = entries[:index] + entries[index + 3 :]
            break
    return [each for each in entries if not (isinstance(each, dict) and each.get("name") == BRACE)]


_OBJECT, _CHANGE = "--manifest={", "--set="


def _is_launcher(words: list[Any]) -> bool:
    return all(isinstance(word, str) for word in words) and any(word.startswith(_OBJECT) for word in words)


def _without_object(words: list[str]) -> list[str]:
    return [word for word in words if not word.startswith((_OBJECT, _CHANGE))]


def _object_of(words: list[str]) -> Any:
    """What the launcher creates, as its kubelet hands it the words."""
    (text,) = [expanded(word).partition("=")[2] for word in words if word.startswith(_OBJECT)]
    changes = [expanded(word).removeprefix(_CHANGE) for word in words if word.startswith(_CHANGE)]
    return kube_client.manifest_from_text(text, "--manifest", changes)


_USED = f"$({BRACE})"


def _has_brace(container: dict[Any, Any]) -> bool:
    return any(each.get("name") == BRACE for each in container.get("env", []))


def _without_empty_env(mapping: dict[Any, Any]) -> dict[Any, Any]:
    env = mapping.get("env")
    return {
        key: value
        for key, value in mapping.items()
        if not (key == "env" and isinstance(env, list) and not _without_brace(env))
    }


# One judge for each medium.


def _argo(words: Words, made: str, twin: str) -> None:
    here, there = list(yaml.safe_load_all(made)), list(yaml.safe_load_all(twin))
    if len(here) != len(there):
        raise Injected(f"{len(here)} documents, its twin has {len(there)}")
    for pair in zip(here, there, strict=True):
        words.tree(*(map(_handed_over, pair) if words.launcher else pair), tags="{{")


def _yaml(words: Words, made: str, twin: str) -> None:
    here, there = (list(yaml.safe_load_all(text.partition("\n\0")[0])) for text in (made, twin))
    Words(words.text, words.twin, starts=False).tree(here, there)


def _kfp(words: Words, made: str, twin: str) -> None:
    words.tree(_messages(made), _messages(twin), tags="{{")


def _messages(text: str) -> list[Any]:
    """The documents as KFP's own messages read them, and its driver the parts that it is handed."""
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2 as ir

    pipeline, *platform = yaml.safe_load_all(text)
    message = json_format.ParseDict(pipeline, ir.PipelineSpec())
    deployment = json_format.ParseDict(pipeline["deploymentSpec"], ir.PipelineDeploymentConfig())
    platforms = [json_format.ParseDict(each, ir.PlatformSpec()) for each in platform]
    messages = [json_format.MessageToDict(each) for each in (message, deployment, *platforms)]
    messages[1] = {DRIVEN: messages[1]}
    return [_handed_over(each) for each in messages]


DRIVEN = "deploymentSpec"
"""What KFP hands its driver: containers, and in a platform's document the Kubernetes settings."""


def _handed_over(tree: Any) -> Any:
    """A document of KFP's, with what its driver is handed as the driver reads it."""
    if isinstance(tree, dict):
        return {key: _by_the_driver(value) if key == DRIVEN else _handed_over(value) for key, value in tree.items()}
    return [_handed_over(each) for each in tree] if isinstance(tree, list) else tree


def _by_the_driver(tree: Any) -> Any:
    """What the kubelet of a driver's pod leaves of its arguments, when every variable of that pod is a secret."""
    if isinstance(tree, str):
        return _VARIABLE.sub(lambda found: "$" if found[1] == "$" else "<the driver's secret>", tree)
    if isinstance(tree, dict):  # metadata of a step's pod does not pass the driver
        return {key: value if key == "podMetadata" else _by_the_driver(value) for key, value in tree.items()}
    return [_by_the_driver(each) for each in tree] if isinstance(tree, list) else tree


def _python(words: Words, made: str, twin: str) -> None:
    _node(words, ast.parse(made), ast.parse(twin), re.search("Gpu(Pod|Gang)Operator", made) is None)
    here, there = _comments(made), _comments(twin)
    if len(here) != len(there):
        raise Injected(f"{len(here)} comments, its twin has {len(there)}")


def _comments(text: str) -> list[str]:
    return [each.string for each in tokenize.generate_tokens(StringIO(text).readline) if each.type == tokenize.COMMENT]


def _node(words: Words, ours: Any, twin: Any, renders: bool, path: tuple[Any, ...] = ()) -> None:
    """Python's own tree: the same nodes with the same names; constants are texts."""
    if isinstance(twin, ast.Constant) and (inside := _literal(ours)) is not None:
        ours, path = inside, (*path, "literal")  # text that Jinja would change is put out of its reach
    if isinstance(twin, ast.ImportFrom) and isinstance(ours, ast.ImportFrom):
        for each in (ours, twin):
            each.names = [name for name in each.names if name.name != "literal"]
    if type(ours) is not type(twin):
        raise Injected(f"{_at(path)}: {_source(ours)!r:.200} is not {_source(twin)!r:.200}")
    if isinstance(twin, ast.Constant) and isinstance(twin.value, str):
        if not isinstance(ours.value, str):
            raise Injected(f"{_at(path)}: {ours.value!r:.100} is not text")
        if renders and words.twin in twin.value and "{{" in twin.value and not _is_out_of_reach(path):
            here, there = _rendered(ours.value), _rendered(twin.value)
            words.same(here, there, path=path)
        else:
            words.same(ours.value, twin.value, path=path)
            if renders and ours.value != twin.value and not _is_out_of_reach(path) and _is_template(ours.value):
                raise Injected(f"{_at(path)}: Airflow would render {ours.value!r:.200}")
        return
    if isinstance(twin, ast.Dict):
        _node(words, ours.keys, twin.keys, renders, (*path, "keys"))
        for key, *pair in zip(twin.keys, ours.values, twin.values, strict=True):
            _node(words, *pair, renders, (*path, key.value if isinstance(key, ast.Constant) else None))
    elif isinstance(twin, ast.AST):
        for name in twin._fields:
            step = (
                twin.func.id if isinstance(twin, ast.Call) and isinstance(twin.func, ast.Name) else type(twin).__name__
            )
            keyword = twin.arg if isinstance(twin, ast.keyword) else name
            _node(words, getattr(ours, name), getattr(twin, name), renders, (*path, step, keyword))
    elif isinstance(twin, list):
        if len(ours) != len(twin):
            raise Injected(f"{_at(path)}: {len(ours)} parts, its twin has {len(twin)}")
        for index, pair in enumerate(zip(ours, twin, strict=True)):
            _node(words, *pair, renders, (*path, index))
    elif isinstance(twin, str):  # a name
        if ours != twin and not (ours.isidentifier() and words.twin in twin.lower()):  # a constant is in capitals
            raise Injected(f"{_at(path)}: the name {ours!r} is not {twin!r}")
    elif ours != twin:
        raise Injected(f"{_at(path)}: {ours!r} is not {twin!r}")


def _literal(node: Any) -> Any:
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "literal"
    return node.args[0] if is_call and len(node.args) == 1 and not node.keywords else None


NOT_RENDERED = {"literal", "DAG", "doc", "Param", "Asset", "TaskGroup"}
"""Calls and arguments whose text Airflow shows, or takes as it is."""


def _is_out_of_reach(path: tuple[Any, ...]) -> bool:
    return bool(NOT_RENDERED & set(path))


def _is_template(text: str) -> bool:
    return any(mark in text for mark in ("{{", "{%", "{#"))


def _rendered(text: str) -> str:
    """What Jinja makes of a template whose variables say their own names."""
    import jinja2

    class Shown(jinja2.Undefined):
        def __str__(self) -> str:
            return f"<{self._undefined_name}>"

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return Shown(name=f"{self._undefined_name}.{name}")

        def __getitem__(self, name: Any) -> Any:
            return Shown(name=f"{self._undefined_name}[{name}]")

        def __call__(self, *args: Any, **named: Any) -> Any:
            # As they are, and not as Python would write them, which depends on the quotes in them.
            return Shown(name="{}({})".format(self._undefined_name, "\x1f".join(map(str, args))))

    environment = jinja2.Environment(undefined=Shown, keep_trailing_newline=True)
    environment.filters = {**environment.filters, **dict.fromkeys(("ds", "ts", "tojson"), str)}
    try:
        return environment.from_string(text).render()
    except jinja2.TemplateError as refusal:
        raise Injected(f"Jinja refuses {text[:200]!r}: {refusal}") from None


def _source(node: Any) -> str:
    try:
        return ast.unparse(node)
    except (AttributeError, TypeError, ValueError, RecursionError):
        return repr(node)


def _json(words: Words, made: str, twin: str) -> None:
    here, there = (json.loads(text.partition("\n\0")[0]) for text in (made, twin))
    _shape(words, here, there)


_KEY = re.compile(r"[\w$./ :-]*")


def _shape(words: Words, ours: Any, twin: Any) -> None:
    """The same keys. Texts are for people, and there may be more of them: a name that Kubernetes refuses is a finding
    that the twin has not."""
    known = _keys(twin)
    for key in _keys(ours) - known:
        if not _KEY.fullmatch(key) and words.text not in key:
            raise Injected(f"the key {key!r:.200}")


def _keys(tree: Any) -> set[str]:
    if isinstance(tree, dict):
        return {*tree, *(key for value in tree.values() for key in _keys(value))}
    return {key for value in tree for key in _keys(value)} if isinstance(tree, list) else set()


def _junit(words: Words, made: str, twin: str) -> None:
    here, there = (ElementTree.fromstring(text.partition("\n\0")[0]) for text in (made, twin))
    known = {(each.tag, *sorted(each.attrib)) for each in there.iter()} | JUNIT
    for each in here.iter():
        if (each.tag, *sorted(each.attrib)) not in known:
            raise Injected(f"the element {each.tag} {sorted(each.attrib)}")


JUNIT = {("failure", "message"), ("failure", "message", "type"), ("skipped", "message"), ("error", "message"),
         ("system-out",)}  # fmt: skip
_COMMAND = re.compile(r"^\s*::[\w-]+|##\[", re.MULTILINE)
"""What GitHub's runner looks for in every line of a log."""


def _text(words: Words, made: str, twin: str) -> None:
    for name, here, there in zip(("output", "errors"), made.split("\n\0"), twin.split("\n\0"), strict=False):
        if "\n" in words.text.strip("\n") and words.text.strip("\n") in here:
            raise Injected(f"{name}: the text makes lines of its own")
        if _commands(here) - _commands(there):
            raise Injected(f"{name}: a command for GitHub's runner: {_COMMAND.search(here)!r}")
        if HIDDEN_IS_REFUSED and (found := HIDDEN.search(here)):
            raise Injected(f"{name}: the character {found[0]!r} stands in it as it is")


def _commands(text: str) -> set[str]:
    return set(_COMMAND.findall(text))


_ANNOTATION = re.compile(r"::(error|warning|notice) \w+=.*?::.*")


def _github(words: Words, made: str, twin: str) -> None:
    """Every line is an annotation with its place; a finding that the twin has not is one more of them."""
    printed, _, errors = made.partition("\n\0")
    for line in printed.splitlines():
        if line and not _ANNOTATION.fullmatch(line):
            raise Injected(f"the line {line!r:.200}")
    _text(words, errors, "")


_CELL = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)


def _markdown(words: Words, made: str, twin: str) -> None:
    _text(words, made, twin)
    known = {_html(line) for line in twin.splitlines()}
    for line in made.partition("\n\0")[0].splitlines():
        if _html(line) not in known:
            raise Injected(f"a tag: {line!r:.200}")
    widths = {len(_CELL.findall(line)) for line in twin.splitlines() if line.startswith("|")}
    for line in made.partition("\n\0")[0].splitlines():
        if line.startswith("|") and widths and len(_CELL.findall(line)) not in widths:
            raise Injected(f"other cells: {line!r:.200}")


def _html(line: str) -> tuple[str, ...]:
    return tuple(re.findall(r"(?<!\\)<[a-z!/?]\w*", _CODE.sub("", line)))


JUDGES: dict[str, Callable[[Words, str, str], None]] = {
    "argo": _argo, "yaml": _yaml, "kfp": _kfp, "python": _python, "json": _json, "junit": _junit, "text": _text,
    "github": _github, "markdown": _markdown,
}  # fmt: skip
