"""Claim an instance of a pool for the length of a block, use it, and give it back.

    async with rota.Client().claim("boxes") as box:
        result = await box.exec("pytest -q")

- The claim is released whenever the block is left, also by an exception or a cancellation, at whatever moment.
- Its lease is renewed while the block runs. Once the claim is lost, every call raises an error with the reason.
- While the server is away, requests that may be repeated are retried. A command never is.
- Data from an instance is not trusted: it is bounded, and no path in it leads out of its target folder.

Never: holds an instance for longer than its lease when nobody renews it.
"""

from rota.client.channels import ExecFailed
from rota.client.claims.box import Box
from rota.client.claims.context import ClaimContext
from rota.client.claims.failures import ClaimLost, CommandFailed, NoneFree, TreeRefused
from rota.client.claims.files import Entry, Files
from rota.client.claims.result import Result

__all__ = [
    "Box",
    "ClaimContext",
    "ClaimLost",
    "CommandFailed",
    "Entry",
    "ExecFailed",
    "Files",
    "NoneFree",
    "Result",
    "TreeRefused",
]
