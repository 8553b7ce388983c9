"""Finds the cause of pip's failure in its output: one word for a condition, and a message with what to do."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

LINES_SHOWN_MAX = 4
"""The most lines of errors in a message."""
LINE_CHARACTERS_MAX = 300
VERSIONS_SHOWN_MAX = 5
"""The most versions of a package in a message; the newest are shown."""
SECRET_CHARACTERS_MIN = 4
"""The least length of a secret that is hidden everywhere in a text. Shorter ones are hidden in addresses only."""
HIDDEN = "****"
_USER = re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^/?#\s\"']{1,1000}@", re.IGNORECASE)
_ERROR = re.compile(r"^(ERROR|error): |^× ")
_UNTRUSTED = re.compile(r"certificate verify failed|SSLError|SSLCertVerificationError", re.IGNORECASE)
_UNTRUSTED_DETAIL = re.compile(r"certificate verify failed: ([^(\"'\n]+)", re.IGNORECASE)
_REFUSED = re.compile(
    r"\b(401|403|407)\b[^\n]{0,40}(error|unauthorized|forbidden|authentication)|credentials not correct",
    re.IGNORECASE,
)
_UNREACHABLE = re.compile(
    r"NewConnectionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|NameResolutionError|ConnectionResetError|"
    r"RemoteDisconnected|Connection refused|Network is unreachable|name resolution|Name or service not known|"
    r"Read timed out"
)
_REACHED = re.compile(r"\(from versions: (?!none\))")
_CONFLICT = re.compile(r"ResolutionImpossible|conflicting dependencies")
_UNANSWERED = re.compile(r"Could not fetch URL [^\n]{1,2000}")
_BUILD = re.compile(
    r"subprocess-exited-with-error|metadata-generation-failed|failed-wheel-build|Failed building wheel|"
    r"Could not build wheels|Failed to build"
)
_NOT_FOUND = re.compile(r"No matching distribution found|Could not find a version that satisfies")
_INVALID = re.compile(r"Invalid requirement")
_AT = re.compile(r"^\s*(?:Collecting|Processing|Building wheel for) (\S+)", re.MULTILINE)
_VERSIONS = re.compile(r"\(from versions: ([^()]+)\)")
_OUTPUT_BEGINS = re.compile(r"╰─> \[\d+ lines of output\]")
_OUTPUT_ENDS = "[end of output]"


NOT_TRUSTED, REFUSED, UNREACHABLE = "CertificateNotTrusted", "IndexRefused", "IndexUnreachable"
CONFLICT, BUILD_FAILED, BAD, NOT_FOUND = (
    "RequirementsConflict",
    "PackageBuildFailed",
    "BadRequirement",
    "PackageNotFound",
)
FAILED = "RequirementsFailed"
REASONS = (NOT_TRUSTED, REFUSED, UNREACHABLE, CONFLICT, BUILD_FAILED, BAD, NOT_FOUND, FAILED)


class Cause(NamedTuple):
    """The cause of a failed installation: one word for a condition, and a message."""

    reason: str
    message: str


def cause(said: str, code: int) -> Cause:
    """Return the cause of a failure, from the output of pip and its exit code."""
    shown = "; ".join(errors_in(said)) or f"pip ended with {code}"
    if _UNTRUSTED.search(said) and not _REACHED.search(said):
        detail = _UNTRUSTED_DETAIL.search(said)
        how = f" ({detail[1].strip()})" if detail else ""
        return Cause(
            NOT_TRUSTED,
            f"the certificate of the package index is not trusted{how}: name its CA in the server's pip configuration,"
            f" as PIP_CERT or as cert in pip.conf; {shown}",
        )
    if _REFUSED.search(said) and not _REACHED.search(said):
        return Cause(
            REFUSED,
            f"the package index refuses the server: correct the login in the server's pip configuration; {shown}",
        )
    if _UNREACHABLE.search(said) and not _REACHED.search(said):
        return Cause(
            UNREACHABLE,
            "the package index cannot be reached: see to the server's network, or to index-url and proxy of its pip"
            f" configuration; {shown}",
        )
    if _CONFLICT.search(said):
        return Cause(CONFLICT, f"the requirements exclude each other: {shown}")
    if _BUILD.search(said):
        return Cause(
            BUILD_FAILED,
            f"{_built(said)} is built from source, and that fails: see the log, or require a version that has a wheel;"
            f" {shown}{_last_of_build(said)}",
        )
    if _INVALID.search(said):
        return Cause(BAD, f"a requirement is not understood: {shown}")
    if _NOT_FOUND.search(said):
        return Cause(NOT_FOUND, f"no package index has what is required: correct its name or version; {shown}")
    return Cause(FAILED, f"pip failed: {shown}")


def is_unexplained(said: str) -> bool:
    """Report whether pip has to run again with -vv to show why: many versions name an unreachable index only there."""
    return "(from versions: none)" in said and cause(said, 1).reason == NOT_FOUND


def unanswered(said: str) -> str:
    """Return the lines on unreachable indexes in the output of pip -vv."""
    return "".join(f"{line}\n" for line in dict.fromkeys(_UNANSWERED.findall(said)))


def errors_in(said: str) -> list[str]:
    """Return the lines that pip marks as errors; if there are none, its last two lines that are not warnings."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    found = [line for line in lines if _ERROR.match(line)]
    if not found:
        found = [line for line in lines if not line.startswith(("WARNING:", "[notice]", "DEPRECATION:"))][-2:]
    return [_cut(line) for line in dict.fromkeys(found)][:LINES_SHOWN_MAX]


def _built(said: str) -> str:
    """Return the name of the package whose build failed, if the output shows it."""
    before = said[: found.start()] if (found := _BUILD.search(said)) else said
    names = _AT.findall(before)
    return names[-1].rpartition("/")[2] if names else "a package"


def _last_of_build(said: str) -> str:
    """Return the last line of the build's own output, which usually is its exception."""
    last, is_output = "", False
    for line in said.splitlines():
        if _OUTPUT_BEGINS.search(line):
            is_output = True
        elif _OUTPUT_ENDS in line:
            is_output = False
        elif is_output and line.strip():
            last = line.strip()
    return f"; it said: {_cut(last)}" if last else ""


def _cut(line: str) -> str:
    if found := _VERSIONS.search(line):
        versions = found[1].split(", ")
        if len(versions) > VERSIONS_SHOWN_MAX:
            newest = ", ".join(versions[-VERSIONS_SHOWN_MAX:])
            line = f"{line[: found.start(1)]}…, {newest}{line[found.end(1) :]}"
    return line if len(line) <= LINE_CHARACTERS_MAX else f"{line[: LINE_CHARACTERS_MAX - 1]}…"


def redacted(text: str, secrets: Collection[str]) -> str:
    """Return a text without secrets: the given ones, and users and passwords in addresses."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SECRET_CHARACTERS_MIN:
            text = text.replace(secret, HIDDEN)
    return _USER.sub(rf"\1{HIDDEN}@", text)
