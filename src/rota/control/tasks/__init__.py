"""Attempts of tasks on the workers of pools, and the decisions about a task, which are pure.

- *Written first.* A runner is sent an attempt only after it is written that the task runs there.
- *At most once.* Whatever is killed, every task ends, and each attempt does its work at most once.
- *At its place.* A task that loses its worker is tried again, and has its place in the queue again.
- *One of a branch.* Of the tasks on one branch of a workspace one runs at a time.
"""
