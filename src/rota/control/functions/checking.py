"""Static checks of a function's inline code: it is compiled and parsed, never imported."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from difflib import get_close_matches

from rota.api import Function
from rota.runtime.code.cache import inline_file

IMPORT_FAILED = "ImportFailed"
DYNAMIC = frozenset(("globals", "exec", "eval", "setattr", "vars", "locals", "modules", "__dict__", "__getattr__"))
"""Names with which code may define others at run time: then a missing entrypoint is no problem."""


def code_problem(function: Function) -> tuple[str, str] | None:
    """Return the reason and message for which inline Python cannot be loaded; None: no problem was found.

    They are the same as a worker's. Code on which the compiler runs out of stack or memory is not judged.
    """
    spec = function.spec
    text = spec.source.inline
    if spec.runtime != "python" or text is None or spec.entrypoint is None:
        return None
    file = inline_file(spec.entrypoint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, file, "exec", dont_inherit=True)
            tree = ast.parse(text, file)
    except SyntaxError as error:
        at = f" ({file}:{error.lineno})" if error.lineno is not None else f" ({file})"
        return IMPORT_FAILED, f"{type(error).__name__}: {error.msg}{at}"
    except ValueError as error:
        return IMPORT_FAILED, f"{type(error).__name__}: {error} ({file})"
    except (RecursionError, MemoryError):
        return None
    module, _, name = spec.entrypoint.partition(":")
    try:
        defined = set(_defined(tree))
    except RecursionError:
        return None
    if name in defined or "*" in defined or name.startswith("__"):
        return None
    alike = get_close_matches(name, sorted(one for one in defined if not one.startswith("_")), 1)
    hint = f"; did you mean {module}:{alike[0]}?" if alike else ""
    return IMPORT_FAILED, f"entrypoint {spec.entrypoint}: module {module} has no {name}{hint}"


def _defined(tree: ast.Module) -> Iterator[str]:
    """Yield each name that the module may define; `*` if it may define any."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in DYNAMIC:
                yield "*"
            case ast.Global(names=names):
                yield from names
    yield from _bound(tree.body)


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements bind in their own scope, without those inside of functions and classes."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield "*" if name in DYNAMIC else name
                continue
            case ast.Lambda():
                continue
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
        waiting.extend(ast.iter_child_nodes(node))
