"""The rules for names and sentences in the source. `python -m tests.words src/rota/server` prints what breaks them."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "rota"
AVOIDED = frozenset(
    [
        "amending",
        "carrying",
        "desk",
        "endings",
        "heard",
        "hearing",
        "holding",
        "met",
        "orders",
        "seen",
        "settled",
        "standing",
        "tell",
        "telling",
        "tells",
        "told",
        "unsee",
    ]
)
"""Words that say nothing to a newcomer, in whatever name: docs/glossary.md has those to use."""
AVOIDED_ALONE = frozenset(["later", "line", "party", "turn", "turns"])
"""Words that say something only beside another."""
RIDDLE = re.compile(r"(How|What|Who|Whether|Those|That|Of|For who)\s")
"""A sentence that begins so has to be read twice: it says what it is about after what it says of it."""
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def sources(below: Path = SOURCE) -> list[Path]:
    return sorted(below.rglob("*.py"))


def avoided_names(files: Iterable[Path]) -> Iterator[str]:
    """Yield each module, class, function, attribute, argument or variable whose name has an avoided word in it."""
    for file in files:
        for name, number in _names(file):
            if _words(name) & AVOIDED or name.strip("_").lower() in AVOIDED_ALONE:
                yield f"{_place(file, number)} {name}"
        for name, number in _variables(file):
            if _words(name) & AVOIDED:
                yield f"{_place(file, number)} {name}"


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORDS.findall(name)}


def repeated_classes(files: Iterable[Path]) -> Iterator[str]:
    """Yield each class that another one of its layer has the name of."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file in files:
        layer = file.relative_to(SOURCE).parts[0]
        for node in ast.walk(_tree(file)):
            if isinstance(node, ast.ClassDef):
                places[layer, node.name.lstrip("_")].append(_place(file, node.lineno))
    for (layer, name), found in places.items():
        if len(found) > 1:
            yield f"{layer}: {name} at {', '.join(found)}"


def riddles(files: Iterable[Path]) -> Iterator[str]:
    """Yield each docstring, also of an attribute or of a field of a kind, that opens with a question word."""
    for file in files:
        for node in ast.walk(_tree(file)):
            text = _sentence(node)
            if text is not None and RIDDLE.match(text.value.lstrip()):
                yield f"{_place(file, text.node.lineno)} {text.value.strip().splitlines()[0]}"


class _Text:
    def __init__(self, node: ast.Constant, value: str) -> None:
        self.node, self.value = node, value


def _sentence(node: ast.AST) -> _Text | None:
    if isinstance(node, ast.Expr):
        value: ast.expr | None = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "doc" and node.args:
        value = node.args[0]
    else:
        return None
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return _Text(value, value.value)
    return None


def _names(file: Path) -> Iterator[tuple[str, int]]:
    yield file.stem if file.stem != "__init__" else file.parent.name, 1
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.lineno


def _variables(file: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


_parsed: dict[Path, ast.Module] = {}


def _tree(file: Path) -> ast.Module:
    if file not in _parsed:
        _parsed[file] = ast.parse(file.read_text())
    return _parsed[file]


def _place(file: Path, number: int) -> str:
    return f"{file.relative_to(SOURCE.parent.parent)}:{number}"


def main(arguments: list[str]) -> int:
    below = [Path(one).resolve() for one in arguments] or [SOURCE]
    files = [file for path in below for file in ([path] if path.is_file() else sources(path))]
    found = 0
    for title, broken in (
        ("names to replace", avoided_names(files)),
        ("classes of one name in one layer", repeated_classes(files)),
        ("sentences that open with a question word", riddles(files)),
    ):
        listed = list(broken)
        found += len(listed)
        print(f"== {title}: {len(listed)}", *listed, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
