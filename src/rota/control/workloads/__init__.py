"""Workloads: the number of instances of each placement, their division among cells, and the rolled-up status.

- *Stable.* A placed instance stays in its cell. A new cell, another weight or more room moves nothing.
- *Never more than wanted.* The cells of a city divide the wanted number, and no cell gets more than it has room for,
  also when several workloads are placed at the same time.
- *Explained.* Instances without a place are counted, with the reason, and placed as soon as there is room.
- *One reason.* The status of a placement and of the workload show the worst reason of their deployments.

Never: moves an instance away from a lost cell while that may still run it; decides which ordinals a cell runs.
"""
