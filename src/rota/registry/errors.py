"""The errors of the API: `Status` objects with a code, a reason and causes by field, as in Kubernetes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rota.api import Kind, problems
from rota.api.problems import Problem

CAUSES_MAX = 1000
"""Bound on the causes in one answer."""


class ApiError(Exception):
    """A refusal of the API."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.warnings = tuple(warnings)
        """Warnings to send with the refusal."""

    def status(self) -> dict[str, Any]:
        """Return the `Status` object."""
        out: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            out["details"] = self.details
        out["code"] = self.code
        return out

    @property
    def is_overtaken(self) -> bool:
        """Report whether a write came too late: the object exists, has changed, is gone or is a new one of its name,
        or its namespace is terminating."""
        return self.code in (404, 409) or any(one.get("reason") == "NamespaceTerminating" for one in self.causes)

    @property
    def causes(self) -> list[dict[str, str]]:
        """Return the causes by field."""
        causes: list[dict[str, str]] = (self.details or {}).get("causes", [])
        return causes


class Malformed(ApiError):  # noqa: N818 - says what the object is
    """The request body cannot be decoded as an object of its kind."""

    def __init__(self, kind: Kind, why: str) -> None:
        message = f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {why}'
        super().__init__(400, "BadRequest", message)
        self.why = why

    def made_by_patch(self, name: str) -> ApiError:
        """Return the error for an object that a patch has made malformed."""
        problem = problems.invalid("patch", name, self.why)
        cause = {"reason": problem.reason, "message": problem.message, "field": problem.field}
        return ApiError(422, "Invalid", f' "" is invalid: {problem}', details={"causes": [cause]})


def _details(kind: Kind, name: str, **more: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"name": name} if name else {}
    if kind.group:
        out["group"] = kind.group
    return {**out, "kind": kind.plural, **more}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def forbidden(kind: Kind, name: str, why: str, *, causes: list[dict[str, str]] | None = None) -> ApiError:
    more = {"causes": causes} if causes else {}
    return ApiError(
        403, "Forbidden", f'{kind.bucket} "{name}" is forbidden: {why}', details=_details(kind, name, **more)
    )


def not_found(kind: Kind, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{kind.bucket} "{name}" not found', details=_details(kind, name))


def method_not_supported(kind: Kind, verb: str) -> ApiError:
    message = f"{verb} is not supported on resources of kind {kind.bucket!r}".replace("'", '"')
    return ApiError(405, "MethodNotAllowed", message, details=_details(kind, ""))


def already_exists(kind: Kind, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{kind.bucket} "{name}" already exists', details=_details(kind, name))


def generated_name_exists(kind: Kind, name: str) -> ApiError:
    message = f'{kind.bucket} "{name}" already exists, the server was not able to generate a unique name for the object'
    return ApiError(409, "AlreadyExists", message, details=_details(kind, name, retryAfterSeconds=1))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(kind: Kind, name: str, why: str = MODIFIED) -> ApiError:
    message = f'Operation cannot be fulfilled on {kind.bucket} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=_details(kind, name))


def precondition_failed(kind: Kind, name: str, what: str, wanted: str, actual: str, since: str) -> ApiError:
    """Return the Conflict of a deletion whose precondition fails. Its message names the kind, not the resource."""
    kind_name = f"{kind.name}.{kind.group}" if kind.group else kind.name
    message = (
        f'Operation cannot be fulfilled on {kind_name} "{name}": the {what} in the precondition ({wanted}) does not '
        f"match the {what} in record ({actual}). The object might have been {since}"
    )
    return ApiError(409, "Conflict", message, details={**_details(kind, name), "kind": kind.name})


def apply_conflict(message: str, causes: list[dict[str, str]]) -> ApiError:
    return ApiError(409, "Conflict", message, details={"causes": causes})


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def invalid(kind: Kind, name: str, found: Sequence[Problem], warnings: Sequence[str] = ()) -> ApiError:
    kept = list(found[:CAUSES_MAX])
    texts = [str(problem) for problem in kept]
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    kind_name = f"{kind.name}.{kind.group}" if kind.group else kind.name
    causes = [{"reason": p.reason, "message": p.message, "field": p.field} for p in kept]
    details: dict[str, Any] = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details |= {"kind": kind.name, "causes": causes}
    message = f'{kind_name} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, details=details, warnings=warnings)


def wrong_kind(kind: Kind, name: str, got: Any) -> ApiError:
    """Return the error of an object whose kind is not that of the request."""
    if not kind.custom:
        return bad_request(f'{got} in version "{kind.version}" cannot be handled as a {kind.name}')
    problem = problems.invalid("kind", got, f"must be {kind.name}")
    return invalid(dataclasses.replace(kind, name=str(got)), name, [problem])


def wrong_version(kind: Kind, name: str, got: Any) -> ApiError:
    """Return the error of a patch that changes the apiVersion of a custom resource. It names the new group."""
    problem = problems.invalid("apiVersion", got, f"must be {kind.api_version}")
    return invalid(dataclasses.replace(kind, group=str(got).rpartition("/")[0]), name, [problem])


def other_name(sent: str, name: str) -> ApiError:
    return bad_request(f"the name of the object ({sent}) does not match the name on the URL ({name})")


def name_missing(name: str) -> ApiError:
    return bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")


def version_required(kind: Kind, name: str) -> ApiError:
    """Return the error of an update without resourceVersion. It names the resource where others name the kind."""
    problem = problems.invalid("metadata.resourceVersion", 0, "must be specified for an update")
    return invalid(dataclasses.replace(kind, name=kind.plural), name, [problem])


def invalid_options(kind_name: str, found: Sequence[Problem]) -> ApiError:
    """Return the error of invalid options, or of options that exclude each other."""
    causes = [{"reason": problem.reason, "message": problem.message, "field": problem.field} for problem in found]
    details = {"group": "meta.k8s.io", "kind": kind_name, "causes": causes}
    text = str(found[0]) if len(found) == 1 else "[" + ", ".join(map(str, found)) + "]"
    return ApiError(422, "Invalid", f'{kind_name}.meta.k8s.io "" is invalid: {text}', details=details)


def too_many_values(kind: Kind, name: str, most: int) -> ApiError:
    message = f'{kind.bucket} "{name}" would have more than {most} values'
    return ApiError(413, "RequestEntityTooLarge", message, details=_details(kind, name))


def too_large(kind: Kind, name: str, size: int, most: int) -> ApiError:
    message = f'{kind.bucket} "{name}" would have {size} bytes; an object has at most {most}'
    return ApiError(413, "RequestEntityTooLarge", message, details=_details(kind, name))


def unprocessable(message: str) -> ApiError:
    return ApiError(422, "Invalid", message)


def too_large_version(wanted: int, current: int) -> ApiError:
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ApiError(504, "Timeout", message, details={"causes": [cause], "retryAfterSeconds": 1})


def unsupported_patch() -> ApiError:
    accepted = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return ApiError(415, "UnsupportedMediaType", message)


def too_busy(message: str) -> ApiError:
    return ApiError(429, "TooManyRequests", message, details={"retryAfterSeconds": 1})


def not_served() -> ApiError:
    """Return the error of an unknown kind or path."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def not_atomic() -> ApiError:
    return bad_request("this server has no atomic batch: write one object at a time")


def unavailable(message: str) -> ApiError:
    return ApiError(503, "ServiceUnavailable", message)


DISK_RETRY_SECONDS = 1
NO_SPACE_RETRY_SECONDS = 10


def disk_full(message: str) -> ApiError:
    """Return the error of a write while the disk is full. Clients may retry."""
    return ApiError(503, "ServiceUnavailable", message, details={"retryAfterSeconds": DISK_RETRY_SECONDS})


def no_space(message: str) -> ApiError:
    """Return the error of a write that would use the disk space reserved for the server."""
    return ApiError(507, "NoSpace", message, details={"retryAfterSeconds": NO_SPACE_RETRY_SECONDS})
