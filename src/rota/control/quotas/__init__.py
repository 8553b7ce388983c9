"""Quotas: how much of a namespace's budget each owner of instances holds."""
