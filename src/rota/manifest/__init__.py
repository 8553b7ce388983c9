"""Manifests and project files: load, check, plan and deploy them.

Promises: loading reads all files and reports all problems together, each as `file:line:column: path: message`; an
object that loads has fields, bounds and rules that a server accepts, because the same code checks both; input is
bounded in size, depth and expansion.

Never: fills in what the file omits, or chooses between two readings of a text. Loading never contacts a server.
"""

from rota.manifest.load import Manifest, ManifestError, load, loads
from rota.manifest.yaml_text import Problem, dumps

__all__ = ["Manifest", "ManifestError", "Problem", "dumps", "load", "loads"]
