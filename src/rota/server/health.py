"""`/healthz`, `/livez` and `/readyz`, as Kubernetes answers them: one check or all, with `verbose` and `exclude`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl

from rota.server.http import Request, Response

PATHS = ("/healthz", "/livez", "/readyz")
TEXT = "text/plain; charset=utf-8"
HEADERS = (("X-Content-Type-Options", "nosniff"),)

Check = Callable[[], str]
"""Returns the trouble; empty if there is none."""


class Health:
    """The checks of one server. Everyone may read them, so an answer says that a check fails, but not why."""

    def __init__(self, live: Mapping[str, Check], ready: Mapping[str, Check]) -> None:
        """`ready` are the checks beside `live` that must pass before the server gets requests."""
        self._checks: dict[str, Mapping[str, Check]] = {
            "healthz": live,
            "livez": live,
            "readyz": {**live, **ready},
        }

    def __call__(self, request: Request) -> Response | None:
        """Return the answer, or None if there is no such check."""
        _, name, *rest = request.path.rstrip("/").split("/")
        checks = self._checks[name]
        if not rest:
            return self._all(name, checks, request)
        check = checks.get("/".join(rest))
        if check is None:
            return None
        return _text(500, "internal server error: reason withheld\n") if check() else _text(200, "ok")

    @staticmethod
    def _all(name: str, checks: Mapping[str, Check], request: Request) -> Response:
        asked = parse_qsl(request.query_text, keep_blank_values=True)
        excluded = {value for key, value in asked if key == "exclude"}
        lines, failed = [], False
        for check, wrong in checks.items():
            if check in excluded:
                lines.append(f"[+]{check} excluded: ok\n")
            elif wrong():
                failed = True
                lines.append(f"[-]{check} failed: reason withheld\n")
            else:
                lines.append(f"[+]{check} ok\n")
        if unknown := sorted(excluded - checks.keys()):
            named = ", ".join(f'"{each}"' for each in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {named}\n")
        if failed:
            return _text(500, f"{''.join(lines)}{name} check failed\n")
        if not any(key == "verbose" for key, _ in asked):
            return _text(200, "ok")
        return _text(200, f"{''.join(lines)}{name} check passed\n")


def is_health(path: str) -> bool:
    return path.startswith(PATHS) and path.split("/")[1] in ("healthz", "livez", "readyz")


def _text(status: int, text: str) -> Response:
    return Response(status, text.encode(), TEXT, HEADERS)
