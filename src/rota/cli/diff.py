"""`rota diff`."""

from __future__ import annotations

from difflib import unified_diff
from typing import Any

from rota.cli.command import command, complain, explained
from rota.cli.options import Files, Force
from rota.cli.output import print_line, printable
from rota.cli.previews import Preview, manifests, preview_all, substance
from rota.cli.session import BAD_USAGE, Session

DIFFERENT = 1
STYLES = {"+": "green", "-": "red", "@": "cyan"}


@command
async def diff(session: Session, filename: Files = None, force: Force = False) -> int:
    """Show what `apply` would change. Exit code: 0 nothing, 1 something, 2 it cannot be determined."""
    try:
        found = manifests(filename, session.settings.namespace)
        async with session.client() as client:
            previews = await preview_all(client, found, force=force)
    except Exception as error:
        # 1 means that there are differences, so it cannot mean that something failed.
        complain(explained(error, only_looks=True)[1])
        return BAD_USAGE
    different = [preview for preview in previews if preview.outcome != "unchanged"]
    for preview in different:
        _write(preview)
    return DIFFERENT if different else 0


def _write(preview: Preview) -> None:
    before, after = _lines(preview.live), _lines(preview.planned)
    if preview.manifest.kind.name == "Secret":
        before, after = _masked(preview.live, preview.planned)
    for text in unified_diff(before, after, f"live/{preview.reference}", f"new/{preview.reference}", lineterm=""):
        heading = text.startswith(("+++", "---"))
        print_line((printable(text), "bold" if heading else STYLES.get(text[:1], "")))


def _lines(obj: Any) -> list[str]:
    from rota.manifest import dumps

    return dumps(substance(obj)).splitlines() if obj else []


def _masked(live: Any, planned: Any) -> tuple[list[str], list[str]]:
    """Return both objects with the values of a Secret masked, such that changed ones differ."""
    old, new = (dict((obj or {}).get("data") or {}) for obj in (live, planned))
    shown_old = {key: "***" if new.get(key) == value else "*** (before)" for key, value in old.items()}
    shown_new = {key: "***" if old.get(key) == value else "*** (after)" for key, value in new.items()}
    written = dict.fromkeys((planned or {}).get("stringData") or {}, "*** (after)")
    before = _lines({**live, "data": shown_old}) if live else []
    after = {name: value for name, value in planned.items() if name != "stringData"}
    return before, _lines({**after, "data": {**shown_new, **written}})
