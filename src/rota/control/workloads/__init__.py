"""Workloads: which cells have how many instances, how many there should be, and what is told of them."""
