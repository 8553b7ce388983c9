"""The rule for links in trees that are not trusted. Standard library only: it runs inside of instances."""

from __future__ import annotations


def stays_inside(name: str, target: str) -> bool:
    """Report whether a link of this name in a tree leads into the tree, whatever other such links there are.

    It may go up first, not beyond the tree, and then down. It may not go up again: on its way down it may have gone
    through another link, and be anywhere.
    """
    depth = sum(part not in ("", ".") for part in name.split("/"))
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    return bool(target) and not target.startswith("/") and ups < depth and ".." not in parts[ups:]
