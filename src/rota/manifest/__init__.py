"""Manifests and project files: load, check, plan and deploy them.

- *All problems.* Loading reports the problems of all files together, each as `file:line:column: path: message`.
- *A server's checks.* Fields, bounds and rules are checked by the code of the server, so what loads is accepted there.
- *Bounded.* Files have limits of size, depth, number of documents and expansion.
- *All or nothing.* A deploy writes nothing before the server has accepted all of it in a dry run.

Never: fills in what a file omits, chooses between two readings of a text. Loading never contacts a server.
"""

from rota.manifest.load import Manifest, ManifestError, load, loads
from rota.manifest.yaml_text import Problem, dumps

__all__ = ["Manifest", "ManifestError", "Problem", "dumps", "load", "loads"]
