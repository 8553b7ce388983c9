"""Versioned bytes: revisions, compare-and-swap and watch, in memory and in one SQLite file.

A key is `<bucket>/<namespace>/<name>`, with an empty namespace for cluster-scoped objects. A prefix is `<bucket>/` or
`<bucket>/<namespace>/`. Values are opaque.

- *Revisions increase.* Each write gets one, strictly increasing over the whole store. None is assigned twice, not after
  a restart, nor after compaction, emptying or a restore.
- *A commit is atomic.* Every write of it finds what it expects, or none happens; and they become visible together.
- *An answer is durable.* A commit resolves when its writes are on the disk and visible. A conflict with a pending
  write is answered when that is durable. Only `head` returns pending writes, for writers to decide on.
- *Reads are from memory*: the published state, complete, in the order of the keys.
- *A watch misses nothing and repeats nothing.* From whatever revision it resumes, it returns every matching event above
  it once, in order, with the state before; or it raises `Gone`.
- *Everything is bounded*: pending writes (`StoreBusy`; `room` waits), history in memory and on the disk, and the length
  of every step. A slow watch costs nothing.
- *A full or failing disk passes.* Pending writes fail with `StoreFull`, and so does every write until the disk takes
  writes again, which is probed once a second. Watches and reads go on; revisions that were not durable are assigned
  again, for nobody has seen them.
- *Any other failed commit stops the store.* Every later write fails with `StoreStopped`, watches end, reads from memory
  go on, and the file has everything that was acknowledged.

Never: looks into a value, makes a write visible before it is durable, or shares its file with another process.

A store belongs to the event loop that first used it and is called from that loop's thread only. `SqliteStore` has a
thread for writing and one for reading old history.
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
