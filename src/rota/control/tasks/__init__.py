"""Attempts of tasks on the workers of pools, and pure decisions on tasks.

- *Written first.* A runner is sent an attempt only after the task's status says that it runs there.
- *At most once.* Whatever is killed, every task ends, and each attempt does its work at most once.
- *At its place.* A task that loses its worker is tried again, at its former place in the queue.
- *One of a branch.* Of the tasks on one branch of a workspace, one runs at a time.
"""
