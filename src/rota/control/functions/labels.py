"""What the Tasks that call a function are found by, whoever made them."""

from __future__ import annotations

from rota.control.instances.names import derived

FUNCTION_LABEL = "rota.dev/function"


def label_of(function: str) -> dict[str, str]:
    return {FUNCTION_LABEL: derived(function)}
