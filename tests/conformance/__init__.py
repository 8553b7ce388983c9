"""Promises of Kubernetes to its clients, asserted through `Client` on every plane that Rota's controllers may run on.

Nothing here may rest on how Rota does it: a test that would fail on a Kubernetes API server is wrong.
"""
