"""The code of functions, imported into this process from its folder.

Each folder has its own modules: two functions may both have a `main`. They are in `sys.modules`, and the folder
in `sys.path`, while a module of it is imported or called. A module that is loaded from that folder already is used
as it is, with the changes that a test has made.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from rota.api import Function
from rota.runtime.code.cache import inline_digest, inline_place

Handler = Callable[..., Any]


class Code:
    """The code of a project's functions."""

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}
        """Folders by the digest of their packed content."""
        self._modules: dict[Path, _Modules] = {}
        self._entered: _Modules | None = None
        self._inline: TemporaryDirectory[str] | None = None

    def close(self) -> None:
        self.leave()
        if self._inline is not None:
            self._inline.cleanup()

    def packed(self, digest: str, path: Path) -> None:
        """Note the folder or file of a digest."""
        self._paths[digest] = (path if path.is_dir() else path.parent).resolve()

    def is_here(self, function: Function) -> bool:
        """Report whether the handler of a function can be called here."""
        return function.spec.runtime == "python" and self._folder(function) is not None

    def handler(self, function: Function) -> tuple[ModuleType, Handler]:
        """Return the handler and its module. Raises the exceptions of the import."""
        folder = self._folder(function)
        assert folder is not None and function.spec.entrypoint is not None
        self._enter(folder)
        name, _, rest = function.spec.entrypoint.partition(":")
        module = importlib.import_module(name)
        found: Any = module
        for part in rest.split("."):
            found = getattr(found, part)
        if not callable(found):
            raise TypeError(f"{function.spec.entrypoint} is {type(found).__name__}, which cannot be called")
        return module, found

    def leave(self) -> None:
        """Remove the current folder and its modules from `sys`."""
        if self._entered is not None:
            self._entered.leave()
            self._entered = None

    def _enter(self, folder: Path) -> None:
        modules = self._modules.setdefault(folder, _Modules(folder))
        if modules is not self._entered:
            self.leave()
            modules.enter()
            self._entered = modules

    def _folder(self, function: Function) -> Path | None:
        source = function.spec.source
        if source.inline is not None:
            return self._written(source.inline, function.spec.entrypoint or "")
        return self._paths.get(source.digest or "")

    def _written(self, text: str, entrypoint: str) -> Path:
        """Write inline code to a file, so that tracebacks show its lines."""
        digest = inline_digest(text, entrypoint)
        if digest not in self._paths:
            if self._inline is None:
                self._inline = TemporaryDirectory(prefix="rota-testing-")
            file = inline_place(Path(self._inline.name, digest.removeprefix("sha256:")), entrypoint)
            file.parent.mkdir(parents=True)
            file.write_text(text, encoding="utf-8")
            self._paths[digest] = Path(self._inline.name, digest.removeprefix("sha256:")).resolve()
        return self._paths[digest]


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the body."""
    if not values:
        yield
        return
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text


class _Modules:
    """The modules imported from one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._own: dict[str, ModuleType] = {}
        self._hidden: dict[str, ModuleType] = {}
        """Modules of other folders, hidden under names that exist here too."""
        self._before: set[str] = set()

    def enter(self) -> None:
        importlib.invalidate_caches()
        names = {name.removesuffix(".py") for name in os.listdir(self._folder)} - sys.stdlib_module_names
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in names and not self._is_own(module):
                self._hidden[name] = sys.modules.pop(name)
        self._before = set(sys.modules)
        sys.modules.update({name: module for name, module in self._own.items() if name not in self._before})
        sys.path.insert(0, self._folder)

    def leave(self) -> None:
        if self._folder in sys.path:
            sys.path.remove(self._folder)
        for name, module in list(sys.modules.items()):
            if name not in self._before and self._is_own(module):
                self._own[name] = sys.modules.pop(name)
        sys.modules.update(self._hidden)
        self._hidden = {}

    def _is_own(self, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        places = [file] if file else list(getattr(module, "__path__", ()))
        return any(str(place).startswith(self._folder + os.sep) for place in places)
