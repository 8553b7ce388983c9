"""Rules of kinds, in a subset of CEL.

- A rule's text means here what it means in a kube-apiserver, where it stands in `x-kubernetes-validations`.
- What the subset lacks is refused by `compile`, with the place; nothing is guessed.
- A rule reads plain JSON that its schema has accepted and completed; it never changes it, and does no I/O.
- A rule has a value or raises `CelEvalError`, in bounded time (`bounds`).

A kube-apiserver takes the type of a value from the schema; here the JSON value alone decides it. So a field of type
`number` must be passed as a float and one of type `integer` as an int; a null field counts as absent. Lists and maps
compare by their structure, if `compile` was given one.

The subset is described in docs/reference/cel.md.
"""

from __future__ import annotations

from rota.api.cel.errors import CelEvalError, CelSyntaxError
from rota.api.cel.program import Program, compile  # noqa: A004

__all__ = ["CelEvalError", "CelSyntaxError", "Program", "compile"]
