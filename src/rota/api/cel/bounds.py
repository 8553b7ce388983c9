"""How large a rule, and one evaluation of it, may grow.

A kube-apiserver bounds the cost of a rule from `maxItems` and `maxLength` when the kind is created, so a rule that it
accepts stays far below these; they only stop a mistake from holding up the server.
"""

from __future__ import annotations

from typing import Final

SOURCE_CHARS_MAX: Final = 10_000
"""Length of a rule's text."""
NESTING_DEPTH_MAX: Final = 40
"""Brackets, calls, macros and conditionals inside each other in a rule's text."""
BLOCK_DEPTH_MAX: Final = 16
"""Macros and operands of `&&` and `||` inside each other: CPython nests no more than 20 blocks in a function."""
ITERATIONS_MAX: Final = 1_000_000
"""Items that the macros of one evaluation may visit, counted when a list is entered."""
TEXT_CHARS_MAX: Final = 10_000_000
"""Length of a string that a rule builds."""
