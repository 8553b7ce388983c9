"""Holds of instances, by tasks and claims alike: one ledger for each pool, and one way to write what it decides.

- *Together.* Holds that begin and end in one turn of the event loop are written in one commit, each decided by itself.
- *At its place.* A request whose hold could not be written waits again at its place, and tries another instance.
- *Once.* A write whose answer was lost is sent again until it is answered, and has its effect once.
- *By the leader.* A process that does not lead any more gives nothing to anybody, and drops no request.
"""
