"""The bounds within which workspaces are fetched and made."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """What a repository may take."""

    fetch_seconds_max: float = 600
    fetch_bytes_max: int = 8 << 30
    mirror_bytes_max: int = 16 << 30
    clone_seconds_max: float = 300
    tree_bytes_max: int = 16 << 30
    tree_files_max: int = 1_000_000
    tree_depth_max: int = 200
    """Folders within each other."""
    discard_seconds_max: float = 300
    # A mirror younger than the first is used as it is; younger than the second, too, and refreshed for the next one.
    fresh_seconds: float = 2
    stale_seconds: float = 30
