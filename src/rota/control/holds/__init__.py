"""Holds of instances by tasks and claims: one ledger for each pool, and one way to write what it decides.

- *Together.* Holds that begin or end in one iteration of the event loop are in one commit; each may fail on its own.
- *At its place.* A request whose hold could not be written keeps its place in the queue, and tries another instance.
- *Once.* A write whose answer was lost is sent again until it is answered, and has its effect once.
- *By the leader.* A process that does not lead any more gives no instance away, and drops no request.
"""
