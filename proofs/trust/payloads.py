"""Text that some reader on the way might take for its own: engines, kubelet, YAML, Python, XML, Markdown, terminals.

Every payload is made of the atoms below, so that a new trick is one line. `payload(random)` draws one: an atom, several
glued together, one in the middle of ordinary words, or a very long one.
"""

from __future__ import annotations

from random import Random

ATOMS: dict[str, tuple[str, ...]] = {
    "jinja": (
        "{{ 7*7 }}", "{% raw %}", "{%- set x=1 -%}", "{# c #}", "{{ var.value.secret }}", "{{conn.x}}", "{%", "%}",
        "{% endraw %}{{ 1 }}{% raw %}", "{{", "{{{", "}}",
    ),
    "argo": (
        "{{workflow.name}}", "{{=1+1}}", "{{=sprig.env('HOME')}}", "{{inputs.parameters.p}}", "{{item}}", "{{=",
        "{{=toJson(workflow)}}", "{{tasks.a.outputs.parameters.o}}", "{{workflow.parameters.p}}", "{{retries}}",
        "{{=asInt('1')}}", "' + 'x", "') ? 1 : ('", "{{pod.name}}", "{{ workflow.uid }}",
    ),
    "kfp": (
        "{{$}}", "{{$.inputs.parameters['p']}}", "{{$.pipeline_job_uuid}}", "{{channel:task=;name=p;type=String;}}",
    ),
    "kubelet": (
        "$(DB_PASSWORD)", "$$(DB_PASSWORD)", "$$", "$", "$(", "$(PATH)", "$$$(HOME)", "$(GPUFLOW_BRACE)", "${X}",
    ),
    "yaml": (
        "---", "\n---\nkind: Pod\n", ": ", " #c", "#", "&a", "*a", "!!python/object:os.system", "- x", "\t", "? k",
        "|", ">", "%YAML 1.1", "@x", "`x`", "{a: b}", "[1", "~", "null", "y", "1e3", "0o7", "<<", "...", "\n...\n",
    ),
    "python": (
        '"', "'", '"""', "'''", "\\", "\\'", '\\"', "\n", '"\nimport os\n"', "\\N{BULLET}", "{__import__('os')}",
        "#\nimport os", "');import os;('", "\\u0022", "\r", "\r\n", "%s", "%(x)s", "\x0c",
    ),
    "xml": (
        "<x>", "]]>", "&amp;", "<!--", "-->", "<?pi?>", "&#0;", "</testcase><testcase name='x'>",
    ),
    "markdown": (
        "|", "`", "```", "<img src=x onerror=1>", "[a](javascript:1)", "![x](http://e)", "**", "\n# h", "\n| a |",
        "https://e.x<h1>", "www.e.x<details>", "a@e.co<b>",
    ),
    "github": (
        "::error::x", "\n::set-output name=a::b", "::stop-commands::t", "##[error]x", "%0A::warning::x",
        "\n::add-mask::x",
    ),
    "terminal": (
        "\x1b[31m", "\x1b]0;t\x07", "\x9b2J", "\x08\x08", "\x7f", "\x00", "\x07", "\x1b]8;;http://e\x1b\\",
    ),
    "bidi": (
        "\u202e", "\u2066x\u2069", "\u061c", "\u200b", "\u3164", "\U000e0041", "\u2028", "\u2029", "\ufeff",
        "\u180e", "\u00ad", "\u200f", "\u2800", "\ufe0f",
    ),
    "unicode": (
        "\ud800", "\udfff", "🙂", "é", "日本", "\uffff", "\U0010ffff", "\x85", "\xa0", "e\u0301",
    ),
    "shell": (
        "; rm -rf /", "`id`", "$(id)", "&& x", "| x", "> /x", "--help", "-c", "=", "../../etc", "/dev/null",
    ),
    "plain": (
        "a", "A b", "0", "-1", "true", " ",
    ),
}  # fmt: skip
ALL = tuple(atom for atoms in ATOMS.values() for atom in atoms)
LONG = 20_000


def payload(random: Random) -> str:
    """One hostile text. Two halves of a character side by side are that character: no file can tell them apart."""
    return _payload(random).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _payload(random: Random) -> str:
    kind = random.random()
    if kind < 0.45:
        return random.choice(ALL)
    if kind < 0.75:
        return "".join(random.choice(ALL) for _ in range(random.randint(2, 5)))
    if kind < 0.98:
        words = [random.choice(ALL) for _ in range(random.randint(1, 3))]
        return f"a{' '.join(words)}b"
    return (random.choice(ALL) or "x") * random.randint(50, 400) + "x" * random.randint(0, LONG)
