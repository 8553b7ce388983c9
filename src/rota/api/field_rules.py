"""Rules on texts and amounts that several kinds have: names of images, addresses, git refs, programs, sizes."""

from __future__ import annotations

from rota.api.model import Rule

_PORT = "([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_HOST = rf"([A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])(:{_PORT})?"
_USER = r"([^-@/\s][^@/\s]*@)?"
"""A user name, which must not look like an option."""
HTTP_URL = rf"^https?://{_USER}{_HOST}([/?#]\S*)?$"
GIT_URL = rf"^((https|ssh)://{_USER}{_HOST}(/\S*)?|file:///\S+)$"

_IDENTIFIER = r"[A-Za-z_]\w*"
ENTRYPOINT = rf"^{_IDENTIFIER}([.]{_IDENTIFIER})*:{_IDENTIFIER}$"
"""module:callable."""
REQUIREMENT = r"^[A-Za-z0-9][^\n\r]*$"
"""A requirement of a package, which must not look like an option of pip."""

_NAME = "[a-z0-9]+([._-]+[a-z0-9]+)*"
IMAGE = (
    rf"^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?/)?{_NAME}(/{_NAME})*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z0-9]+([.+_-][A-Za-z0-9]+)*:[0-9a-fA-F]{32,128})?$"
)
IMAGE_RULE = "must be the name of an image, such as NAME:TAG or REGISTRY/NAME:TAG, in lower case"

# Refused by `git check-ref-format`, or part of an expression for a revision.
NOT_IN_REF = r"[~^:?*\[\\]|[.][.]|@[{]|//|/[.]|^[-./]|[/.]$|[.]lock(/|$)|^@$"
NOT_PRINTED = r"[\x00-\x20\x7f]"
"""Control characters, in the escapes of CEL: patterns have none."""
PROGRAM = "must begin with a program: its first element is empty"


def http_url(field: str) -> Rule:
    return _matches(field, HTTP_URL, f"{field} must be an address with a host, such as https://example.com/path")


def git_url(field: str) -> Rule:
    why = f"{field} must be https://HOST/PATH, ssh://HOST/PATH or file:///PATH"
    return _matches(field, GIT_URL, why)


def git_ref(field: str) -> Rule:
    why = f"{field} must be a name as git has them for branches and tags: without spaces, '..', '~', '^' and ':'"
    bad = f"self.{field}.matches(r'{NOT_IN_REF}') || self.{field}.matches('{NOT_PRINTED}')"
    return Rule(f"!has(self.{field}) || !({bad})", why, field)


def image(field: str) -> Rule:
    return _matches(field, IMAGE, f"{field} {IMAGE_RULE}")


def program(field: str) -> Rule:
    """Return a rule that a command is empty or begins with a program."""
    return Rule(f"!has(self.{field}) || size(self.{field}) == 0 || self.{field}[0] != ''", f"{field} {PROGRAM}", field)


def place(field: str) -> Rule:
    """Return a rule that a path inside an instance can be mounted at."""
    bad = f"self.{field}.matches('(^|/)[.][.]?(/|$)|//') || self.{field} == '/'"
    return Rule(f"!({bad})", f"{field} must be a path without '.', '..' and '//', and not the root", field)


_SYSTEM = "usr|bin|sbin|lib|lib32|lib64|libx32|proc|dev|sys|boot|nix"
_ETC = "ld[.]so[^/]*|passwd|group|hosts|hostname|nsswitch[.]conf|resolv[.]conf|ssl|pki|alternatives|ca-certificates"
SYSTEM_PLACE = f"^/(({_SYSTEM})(/|$)|etc/?$|etc/({_ETC})(/|$))"


NOT_OF_THE_SYSTEM = "must not be a folder of the system, or in one: choose another place, such as /data"


def beside_the_system(field: str) -> Rule:
    """Return a rule that a path inside an instance is not one of the system's programs or settings."""
    return Rule(f"!self.{field}.matches('{SYSTEM_PLACE}')", f"{field} {NOT_OF_THE_SYSTEM}", field)


def more_than_nothing(*fields: str) -> tuple[Rule, ...]:
    """Return a rule for each amount: it is absent or more than 0."""
    return tuple(
        Rule(
            f"!({_is_amount(field)}) || {_amount(field)}.isGreaterThan(quantity('0'))",
            f"{field} must be more than 0",
            field,
        )
        for field in fields
    )


def within_limits(amount: str) -> Rule:
    """Return a rule that the request for a resource does not exceed its limit."""
    requested, limit = f"requests.{amount}", f"limits.{amount}"
    both = f"{_is_amount(requested)} && {_is_amount(limit)}"
    why = f"{requested} must not be more than {limit}"
    return Rule(f"!({both}) || {_amount(requested)}.compareTo({_amount(limit)}) <= 0", why, requested)


def _is_amount(field: str) -> str:
    """Return CEL that is true if the field exists and is a quantity. The schema reports other values."""
    steps = field.split(".")
    there = " && ".join(f"has(self.{'.'.join(steps[: i + 1])})" for i in range(len(steps)))
    return f"{there} && isQuantity(string(self.{field}))"


def _amount(field: str) -> str:
    return f"quantity(string(self.{field}))"


def _matches(field: str, pattern: str, why: str) -> Rule:
    return Rule(f"!has(self.{field}) || self.{field}.matches(r'{pattern}')", why, field)


def whole(text: str) -> str:
    """Return a text without lone surrogates, which cannot be encoded and which file names may have."""
    return text.encode("utf-8", "replace").decode()
