"""Functions: where a call goes, how many workers there are, which version of the code they run, and what is kept of it.

- *Least loaded.* A call goes to the worker that has fewest, of the newest version that can be called; else it waits,
  in the order in which it came, and in a queue that has a bound.
- *Once.* A call that may have begun is never made again by itself. One that was refused was not begun.
- *As many as are needed.* At once as soon as more is asked for than there is; one less when one was not needed for a
  while.
- *Nobody is dropped.* A new version takes over when it can be called; until then, and for ever if it cannot be, the
  one before goes on.
- *Written down.* Every call is a Task, of which the last ones are kept.
"""
