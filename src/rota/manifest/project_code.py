"""Pack the code of a project's functions."""

from __future__ import annotations

from pathlib import Path

from rota.manifest.packing import Packed, Unpackable, pack
from rota.manifest.yaml_text import Node, Problem

PACKS_BYTES_MAX = 256 * 1024 * 1024
"""The packed code of all functions of a project together."""


class Code:
    """Packs each path once, however many functions share it."""

    def __init__(self, folder: Path, source: str) -> None:
        self._folder = folder
        self._source = source
        self._digests: dict[Path, str | None] = {}
        self._bytes = 0
        self.packs: dict[str, Packed] = {}
        self.places: dict[str, Path] = {}
        self.problems: list[Problem] = []

    def with_code(self, node: Node, fields: dict[str, Node], path: str) -> dict[str, Node]:
        """Return a function's fields with its runtime and source. Missing fields are reported and get placeholders."""
        out = {key: inner for key, inner in fields.items() if key != "path"}
        handler = next((key for key in ("command", "entrypoint") if key in fields), None)
        if handler is None:
            self._report(node, f"{path}.entrypoint", "required: the handler as module:callable; or a command")
            out["entrypoint"] = _scalar(node, "a:b")
        # Declared explicitly, so that it changes with the handler.
        out.setdefault("runtime", _scalar(node, "command" if handler == "command" else "python"))
        if "path" in fields and "source" in fields:
            self._report(node, f"{path}.path", "path and source exclude each other", "path")
        elif "path" in fields:
            out["source"] = self._packed(fields["path"], f"{path}.path") or _inline(node)
        elif "source" not in fields:
            self._report(node, f"{path}.path", "required: the folder or file with the code; or a source")
            out["source"] = _inline(node)
        return out

    @staticmethod
    def placeholders(node: Node) -> dict[str, Node]:
        """Return valid stand-ins for the code fields of a function that declares none, for its check."""
        return {"entrypoint": _scalar(node, "a:b"), "source": _inline(node)}

    def _packed(self, node: Node, at: str) -> Node | None:
        if not isinstance(node.value, str) or not node.value:
            self._report(node, at, "a path is a text")
            return None
        path = self._folder / node.value
        if self._leads_out(path):
            self._report(node, at, "it leads out of the project's folder; move the code into it, or the file up")
            return None
        if path not in self._digests:
            self._digests[path] = self._pack(path, node, at)
        digest = self._digests[path]
        if digest is None:
            return None
        position = (node.line_number, node.column)
        return Node(*position, None, {"digest": _scalar(node, digest)}, {"digest": position})

    def _leads_out(self, path: Path) -> bool:
        """Report whether a path leads out of the project, links followed.

        A project file by somebody else must not upload other files of yours.
        """
        try:
            return not path.resolve().is_relative_to(self._folder.resolve())
        except (OSError, RuntimeError, ValueError):
            # Not a path, or a loop of links.
            return False

    def _pack(self, path: Path, node: Node, at: str) -> str | None:
        try:
            packed = pack(path, project=self._folder)
        except Unpackable as why:
            self._report(node, at, str(why))
            return None
        if packed.digest not in self.packs:
            self._bytes += len(packed.content)
        if self._bytes > PACKS_BYTES_MAX:
            self._report(
                node, at, f"the code of all functions has more than {PACKS_BYTES_MAX} bytes; split the project"
            )
            return None
        self.packs[packed.digest] = packed
        self.places[packed.digest] = path
        return packed.digest

    def _report(self, node: Node, path: str, message: str, key: str = "") -> None:
        line, column = node.keys.get(key, (node.line_number, node.column))
        self.problems.append(Problem(self._source, line, column, path, message))


def _scalar(at: Node, value: str) -> Node:
    return Node(at.line_number, at.column, value)


def _inline(at: Node) -> Node:
    position = (at.line_number, at.column)
    return Node(*position, None, {"inline": _scalar(at, "")}, {"inline": position})
