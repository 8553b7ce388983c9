"""An instance of a pool for the length of a block: claimed, used, given back.

    async with rota.Client().claim("boxes") as box:
        result = await box.exec("pytest -q")

- Whenever a block is left, also by an exception or by being cancelled, at whatever moment, its claim is given back.
- It renews itself while the block runs. Once it is lost, every call says so, and why.
- A server that is away for a while is waited for. What may be done twice is asked for again, a command never.
- What comes from an instance is not trusted: it is bounded, and no path of it leads out of where it is put.

Never: holds an instance for longer than its lease when nobody is there to renew it.
"""

from rota.client.channels import ExecFailed
from rota.client.claims.box import Box
from rota.client.claims.failures import ClaimLost, CommandFailed, NoneFree, TreeRefused
from rota.client.claims.files import Entry, Files
from rota.client.claims.holding import Holding
from rota.client.claims.result import Result

__all__ = [
    "Box",
    "ClaimLost",
    "CommandFailed",
    "Entry",
    "ExecFailed",
    "Files",
    "Holding",
    "NoneFree",
    "Result",
    "TreeRefused",
]
