"""Bounds of a rule, and of one evaluation of it.

A kube-apiserver bounds the cost of a rule from `maxItems` and `maxLength` when the kind is created, so a rule that it
accepts stays far below these; they only stop a mistake from holding up the server.
"""

from __future__ import annotations

from typing import Final

SOURCE_CHARS_MAX: Final = 10_000
"""Length of a rule's text."""
NESTING_DEPTH_MAX: Final = 40
"""Bound on nested brackets, and on conditionals in the last branch of others, in a rule's text."""
TREE_DEPTH_MAX: Final = 60
"""Bound on nested operations, also without brackets as in `a * b * c`: CPython nests no more than 200 brackets."""
BLOCK_DEPTH_MAX: Final = 18
"""Bound on nested chains of `&&` and `||`, and on macros, which count twice: CPython nests no more than 20 blocks."""
ITERATIONS_MAX: Final = 1_000_000
"""Items that the macros of one evaluation may visit, counted when a list is entered."""
