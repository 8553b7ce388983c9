"""Versioned bytes: revisions, compare-and-swap, watch. In memory, and in one SQLite file.

A key is `<bucket>/<namespace>/<name>`, the namespace empty for what has none. A prefix is `<bucket>/` or
`<bucket>/<namespace>/`. Values are opaque. What a store promises:

* **Revisions** are given one per write, strictly increasing over the whole store. None is ever given twice, not after
  a restart, nor after compaction, emptying or a restore.
* **A commit is atomic**: every write of it finds what it expects, or none happens; and they are seen together.
* **An answer is durable.** A commit resolves when its writes are on the disk and visible. A conflict with a write that
  is still on its way is answered when that one has arrived. `head` alone looks ahead, for writers to decide on.
* **Reads are of memory**: what is published, whole, in the order of the keys.
* **A watch misses nothing and repeats nothing.** From whatever revision it resumes, it hands out every matching event
  above it once, in order, with the state before; or it is `Gone`, and says so.
* **Everything is bounded**: what waits for the disk (`StoreBusy`; `room` waits for it to be less), what is kept in
  memory of the past, what is kept of it on the disk, and what one step of any of this takes. A slow watcher costs
  nothing.
* **A full or failing disk passes.** What was accepted and is not durable is `StoreFull`, and so is every write until
  the disk takes writes again, which is tried once a second. Watches and reads go on; revisions that were not durable
  are given again, for nobody has seen them.
* **Any other failed commit is the end.** Every write from then on is `StoreStopped`, watches end, reads of memory go
  on, and the file has everything that was acknowledged.

What it never does: look into a value, write without a durable commit, or share its file with another process.

A store belongs to the event loop that first used it and is called from that loop's thread alone. `SqliteStore` has a
thread of its own for writing and one for reading old history.
"""

from rota.store.core import Store
from rota.store.errors import (
    Conflict,
    FutureRevision,
    Gone,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreHeld,
    StoreStopped,
    StoreVersion,
    WatchClosed,
)
from rota.store.memory import MemoryStore
from rota.store.model import Entry, Event, Page, Write
from rota.store.restore import RESTORE_JUMP, restore
from rota.store.sealing import Sealer, WrongKey, create_key, read_key, rotate
from rota.store.sqlite import SqliteStore
from rota.store.watch import Watch

__all__ = [
    "RESTORE_JUMP",
    "Conflict",
    "Entry",
    "Event",
    "FutureRevision",
    "Gone",
    "MemoryStore",
    "Page",
    "Sealer",
    "SqliteStore",
    "Store",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreHeld",
    "StoreStopped",
    "StoreVersion",
    "Watch",
    "WatchClosed",
    "Write",
    "WrongKey",
    "create_key",
    "read_key",
    "restore",
    "rotate",
]
