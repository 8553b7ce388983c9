"""Rota: a local-first scheduling control plane."""
