"""The sources of a project: a project file, manifests, or the text of either."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rota.client import Client
from rota.manifest import Manifest, ManifestError, load, loads
from rota.manifest.deploy import Deployer
from rota.manifest.load import FILE_BYTES_MAX
from rota.manifest.project import Project as Declared
from rota.manifest.project import load_project, loads_project
from rota.manifest.project_format import FILE_NAME
from rota.manifest.rehearsal import apply_all
from rota.manifest.yaml_text import parse
from rota.testing.code import Code

Source = str | Path | Mapping[str, Any]

TEXT = "text"
"""The name of a text in errors."""


def read(source: Source, environment: Mapping[str, str], namespace: str) -> Declared | list[Manifest]:
    """Return the declarations of a source. Raises `ManifestError` with all problems, each with file and line."""
    if isinstance(source, Mapping):
        raise TypeError("an object is applied as it is")
    if isinstance(source, str) and "\n" in source:
        if is_project(source, TEXT):
            return loads_project(source, TEXT, Path.cwd(), environment)
        return loads(source, TEXT)
    path = Path(source)
    if path.is_dir():
        is_one = (path / FILE_NAME).exists()
    else:
        is_one = not path.exists() or is_project(_beginning(path), str(path))
    if is_one:
        return load_project(str(path), environment)
    return load([os.fspath(path)], read_stdin=lambda: b"", namespace=namespace)


def is_project(text: bytes | str, name: str) -> bool:
    """Report whether a text is a project file. Manifests have a kind."""
    documents, problems = parse(text, name)
    if problems:
        raise ManifestError(problems)
    return not any({"kind", "apiVersion"} & set(one.fields or ()) for one in documents)


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX)


async def bring(client: Client, declared: Declared | list[Manifest], code: Code) -> None:
    """Apply declarations to a server, like `rota deploy` and `rota apply`."""
    if isinstance(declared, list):
        await apply_all(client, declared)
        return
    deployer = Deployer(client, _Blobs(declared, code))
    await deployer.apply(await deployer.plan(declared), lambda step: None)


class _Blobs:
    """A blob store that keeps only the paths of code."""

    def __init__(self, declared: Declared, code: Code) -> None:
        self._declared = declared
        self._code = code

    async def has(self, digest: str) -> bool:
        return False

    async def put(self, digest: str, content: bytes) -> None:
        self._code.packed(digest, self._declared.places[digest])
