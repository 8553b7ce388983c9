"""`python -m tests.runtime.older_keeper AGE HOME …`: a keeper as earlier versions of Rota had it.

`leaseless`: it knows nothing of leases. `extending`: it extends leases by numbers, of what was started with one.
"""

from __future__ import annotations

import sys
from typing import Any

from rota.runtime.keeper import __main__ as program
from rota.runtime.keeper.child import Lease
from rota.runtime.keeper.children import Children
from rota.runtime.keeper.fields import Fields, RequestRefused
from rota.runtime.keeper.process import KeeperProcess


def hello(self: KeeperProcess, connection: Any, fields: Fields) -> dict[str, Any]:
    found = _hello(self, connection, fields)
    found.pop("sets_leases", None)
    return found


def do_leaseless(self: KeeperProcess, connection: Any, verb: str, fields: Fields, reply: Any) -> None:
    if verb == "extend":
        raise RequestRefused("UnknownVerb", f"this keeper has no verb {verb!r}")
    fields.values.pop("lease_seconds", None)
    _do(self, connection, verb, fields, reply)


def extend_numbers(self: Children, fields: Fields) -> dict[str, Any]:
    given = fields.values["leases"]
    for key, seconds in {key: Fields(given).number(key, 0) for key in given}.items():
        child = self.live.get(key)
        if child is not None and child.lease is not None:
            child.lease = Lease(seconds)
    return {}


_hello, _do = KeeperProcess._hello, KeeperProcess._do

if __name__ == "__main__":
    KeeperProcess._hello = hello  # type: ignore[method-assign]
    if sys.argv.pop(1) == "leaseless":
        KeeperProcess._do = do_leaseless  # type: ignore[method-assign]
    else:
        Children.extend = extend_numbers  # type: ignore[method-assign]
    program.main()
