"""Which names belong to secrets, and which texts hold one: the same answer for warnings and for what is masked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ENDINGS: Final = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "APIKEY", "CREDENTIAL", "CREDENTIALS")
"""How the last word of a secret's name ends: DB_PASSWORD, PGPASSWORD, HF_TOKEN."""
_KEYS: Final = (
    "ACCESS", "ACCOUNT", "API", "AUTH", "ENCRYPTION", "FERNET", "LICENSE", "MASTER", "PRIVATE", "SECRET", "SERVICE",
    "SHARED", "SIGNING", "SSH", "STORAGE",
)  # fmt: skip
"""The word before KEY that makes it a secret: a SORT_KEY is none, and AWS_ACCESS_KEY_ID is only a name."""
_ACCOUNTS: Final = ("ADMIN", "DB", "DATABASE", "MYSQL", "PG", "POSTGRES", "REDIS", "ROOT", "SMTP", "USER")
"""The word before PASS or PWD that makes it a password."""
_OF_A_TOKENIZER: Final = (
    "AUDIO", "BEGIN", "BOS", "CLS", "END", "EOS", "EOT", "FIRST", "IMAGE", "LAST", "MASK", "MAX", "MIN", "NEW", "NEXT",
    "NUM", "PAD", "PER", "SEP", "SEPARATOR", "SPECIAL", "START", "STOP", "UNK", "VISION",
)  # fmt: skip
"""The word before TOKEN in the settings of language models."""
_OF_KUBERNETES: Final = ("K8S", "KUBE", "KUBERNETES", "PULL", "TLS")
"""The word before SECRET where it is the name of a Secret: IMAGE_PULL_SECRET."""
_HARMLESS: Final = re.compile(
    r"\s*(|true|false|yes|no|on|off|none|null|[01]"  # a switch
    r"|\$\(\w+\)|\$\w+|\$\{\w+\}"  # another variable
    r"|<[^<>]*>|\*+|(x{3,}|change-?me|\.{3}|…)"  # a placeholder
    r"|\.{0,2}(/[a-z0-9._-]+)+/?)\s*",  # a path to where it is
    re.IGNORECASE | re.ASCII,
)
_PATH: Final = re.compile(r"\s*\.{0,2}/")
_FILE: Final = re.compile(
    r"\s*(~|\.{0,2})/([\w.-]+/)*[\w.-]+\.(cert|cfg|conf|crt|env|ini|json|key|p12|pem|pfx|token|txt|ya?ml)\s*"
    r"|\s*/(etc|home|mnt|opt|root|run|secrets?|tmp|usr|var|vault)(/[\w.-]+)+/?\s*",
    re.ASCII,
)
"""A path in capitals too that no chance makes: it ends as files do, or begins as folders do."""
_USER_INFO: Final = re.compile(
    r"\b[a-z][a-z0-9+.-]*://[^\s/?#@:'\"]*:([^\s/?#@'\"]+)@(?!sha256:)", re.IGNORECASE | re.ASCII
)

_TOKENS: Final = re.compile(
    r"(?<![A-Za-z0-9_])(?:gh[oprsu]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{30,}"
    r"|(?:AKIA|ASIA)(?![A-Z0-9]{9}EXAMPLE)[A-Z0-9]{16}(?![A-Z0-9])|AIza[\w-]{35}|xox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|sk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}|sk_live_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{36}|pypi-AgE[\w-]{50,})",
    re.ASCII,
)
"""Tokens that their makers gave a form by which they are known: GitHub, GitLab, Hugging Face, AWS, Google, Slack, …"""
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")
_PASSWORD_OPTION: Final = re.compile(
    r"(?<![\w-])--(?:[a-z0-9]+[-_])*(?:password|passwd|passphrase)(?:=|[ \t]+)(?![-<{$`])(['\"]?)([^\s'\"]+)\1"
)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name usually holds a secret itself, not its place or its size."""
    words = [word for word in re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper().split("_") if word]
    last, before = (words[-1] if words else ""), (words[-2] if len(words) > 1 else "")
    if last == "KEY":
        return before in _KEYS
    if last in ("PASS", "PWD"):
        return before in _ACCOUNTS
    of_others = {"TOKEN": _OF_A_TOKENIZER, "SECRET": _OF_KUBERNETES}
    return last.endswith(_ENDINGS) and before not in of_others.get(last, ())


def is_secret_value(text: str) -> bool:
    """Whether a text can be a secret: no switch, no other variable, no placeholder, no path."""
    if _FILE.fullmatch(text):
        return False
    if _PATH.match(text) and text != text.lower():
        return True  # Base64 may begin with a slash, and is not all in lower case
    return _HARMLESS.fullmatch(text) is None


def tokens_in(text: str) -> list[str]:
    """The access tokens in a text that are known by their form, such as `ghp_…` and `hf_…`."""
    return _TOKENS.findall(text)


def secret_kind_in(text: str) -> str | None:
    """What kind of secret a text holds, wherever it stands; None where none is known by its form."""
    if _TOKENS.search(text):
        return "an access token"
    if _PRIVATE_KEY.search(text):
        return "a private key"
    given = (found for _, found in _PASSWORD_OPTION.findall(text) if not found.startswith(("$", "`")))
    return "a password as an option" if any(map(is_secret_value, given)) else None


def passwords_in(text: str) -> Iterator[str]:
    """The passwords in the addresses of a text, as in `s3://KEY:SECRET@bucket`."""
    return (found for found in _USER_INFO.findall(text) if is_secret_value(found)) if "://" in text else iter(())
