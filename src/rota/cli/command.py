"""Make commands of functions: global options, the event loop, and errors as messages."""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from rota.cli import INTERRUPTED, typed_commands
from rota.cli.session import BAD_USAGE, FAILED, NOT_UNDERSTOOD, CommandError, Session, Settings, understood

GLOBAL_OPTIONS: dict[str, Any] = {
    "namespace": Annotated[
        str | None,
        typer.Option(
            "--namespace", "-n", metavar="NAME", help="Choose a namespace; without it, the context's, or default."
        ),
    ],
    "context": Annotated[
        str | None,
        typer.Option("--context", metavar="NAME", help="Choose another server, by a context of the kubeconfig."),
    ],
    "kubeconfig": Annotated[
        str | None, typer.Option("--kubeconfig", metavar="FILE", help="Look up contexts in this file.")
    ],
    "home": Annotated[
        str | None,
        typer.Option(
            "--home", metavar="FOLDER", help="Choose the local server's folder; without it, $ROTA_HOME or ~/.rota."
        ),
    ],
}
"""Accepted before and after the command."""


def command(function: Callable[..., Any]) -> Callable[..., None]:
    """Make a command of a function whose first parameter is the session. It may be async, and return an exit code."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("ctx", keyword, annotation=typer.Context),
        *(parameter.replace(kind=keyword) for parameter in own),
        *(inspect.Parameter(name, keyword, default=None, annotation=type_) for name, type_ in GLOBAL_OPTIONS.items()),
    ]

    def call(**given: Any) -> None:
        outer: Session = given.pop("ctx").obj
        settings = Settings(**{name: given.pop(name) for name in GLOBAL_OPTIONS})
        session = Session(outer.settings.overridden(settings), outer.connect_with)
        with typed_commands.given(session.settings):
            code = run(lambda: function(session, **given), session)
        if code:
            raise typer.Exit(code)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def run(function: Callable[[], Any], session: Session) -> int:
    """Run a command. Returns its exit code; errors are printed on standard error."""
    try:
        result = function()
        if inspect.iscoroutine(result):
            import asyncio

            result = asyncio.run(result)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        code, message = explained(understood(error) if session.has_asked else error)
        complain(message)
        return code
    return result or 0


def complain(message: str) -> None:
    """Print an error on standard error."""
    from rota.cli.output import error_line

    error_line(message)


def explained(error: Exception, *, only_looks: bool = False) -> tuple[int, str]:
    """Return the exit code and the message of an error. An unforeseen error is a bug, and is raised again.

    With `only_looks`, the command changes nothing in any case, so the message does not say so.
    """
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, BrokenPipeError):
        raise error  # The reader of the output has left: that needs no message.
    if isinstance(error, CommandError):
        return error.code, str(error)
    from rota.registry import ApiError
    from rota.store import StoreError

    if isinstance(error, ApiError):
        return FAILED, _refusal(error)
    if isinstance(error, StoreError | OSError):
        return FAILED, _os_error(error)
    from rota.manifest import ManifestError

    if isinstance(error, ManifestError):
        unchanged = "" if only_looks else "nothing was changed: "
        return BAD_USAGE, f"{error}\n{unchanged}correct {_these(len(error.problems))} first"
    if isinstance(error, ValueError) and type(error).__module__.startswith("rota."):
        return BAD_USAGE, str(error)
    from rota.api.problems import NOT_JSON

    if isinstance(error, NOT_JSON):
        return FAILED, NOT_UNDERSTOOD.format(error)
    raise error


def _these(count: int) -> str:
    return "it" if count == 1 else f"these {count} problems"


def _refusal(error: Any) -> str:
    hints = {
        401: "the credential is not accepted; use another --context, or a token that whoever runs the server makes",
        403: "this credential may not do that",
    }
    if error.code == 409 and "conflict" in error.message and error.causes:
        return f"{error.message}\nleave these fields out, or take them over with --force"
    hint = hints.get(error.code)
    if error.code == 404 and not (error.details or {}).get("name"):
        hint = "the server does not have this kind; `rota crds --install --context NAME` puts Rota's kinds on a cluster"
    return f"{error.message}\n{hint}" if hint and hint not in error.message else str(error.message)


def _os_error(error: Exception) -> str:
    if not isinstance(error, OSError) or error.filename is None:
        return str(getattr(error, "strerror", None) or error)
    return f"{error.filename}: {(error.strerror or str(error)).lower()}"


def is_terminal() -> bool:
    """Report whether a person can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _answer(question: str) -> bool:
    """Ask until the answer is yes or no; an empty line is no. Raises EOFError."""
    while True:
        print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not answer:
            raise EOFError
        word = answer.strip().lower()
        if word in ("y", "yes"):
            return True
        if word in ("", "n", "no"):
            return False
        complain(f'"{word}" is no answer: write y or n')


def confirm(question: str) -> None:
    """Ask a person on the terminal. Raises CommandError unless the answer is yes; Ctrl-C means no.

    SIGINT gets Python's own handler meanwhile, because a running event loop would only remember it for later.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        agreed = _answer(question)
    except (KeyboardInterrupt, EOFError):
        print(file=sys.stderr)  # After the ^C.
        raise CommandError("nothing was changed", INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)
    if not agreed:
        raise CommandError("nothing was changed")
