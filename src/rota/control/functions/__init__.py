"""Functions: the routing of calls, the number and version of workers, and the record of calls.

- *Least loaded.* A call goes to the worker with the fewest calls, of the newest version that is ready. Without a free
  worker it waits, first come, first served, in a queue with a bound.
- *At most once.* A call that may have begun is not repeated, unless it is a Task that retries. A call that a worker
  refused has not begun, and goes back to the head of the queue.
- *As many workers as needed.* More are started at once; one is removed when it was not needed for `idleSeconds`.
- *No gap between versions.* A new version takes over when it is ready. Until then, and for good if it cannot be loaded,
  the version before answers.
- *Recorded.* Every call is a Task, of which the last ones are kept.
"""
