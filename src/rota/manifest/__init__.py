"""Manifests: from files that people write to objects, with every problem at its place.

Promises: all files are read and all problems found before anything is returned, each as `file:line:column: path:
message`; an object that loads is one whose fields, bounds and rules a server accepts, because the same code checks
both; what is read is bounded in size, depth and expansion, whatever it contains.

Never: talks to a server, fills in what was not written, guesses between two readings of a text.
"""

from rota.manifest.dump import dumps
from rota.manifest.load import Manifest, ManifestError, load, loads
from rota.manifest.parse import Problem

__all__ = ["Manifest", "ManifestError", "Problem", "dumps", "load", "loads"]
