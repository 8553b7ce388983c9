"""How an Instance becomes real.

Promises: what was started is owned by exactly one keeper, ends when it is told to with everything that it started, and
is found again by a server that was away. What a host cannot hold (a limit, an isolation) is said, never pretended.

Never: decides what should run, restarts anything by itself, trusts a pid without its start time.
"""
