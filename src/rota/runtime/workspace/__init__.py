"""The workspace of a worker: a tree of a repository at a ref, with files and a set-up command, made anew for each
reset.

- *Mirror.* The host has one bare copy of a repository for all workers that may read it. One process at a time fetches
  it, within bounds of time and size. It is used while it is refreshed, and while its origin cannot be reached. The
  namespace and the Secret of a fetch are part of its name: a mirror gives nobody what their credentials do not give.
- *Own objects.* A tree is made from the mirror, and shares no objects with it: a worker without a uid of its own could
  write to shared objects, and a repack of the mirror would break trees that rely on it.
- *Current.* Before a task, a tree of a branch or a tag is made anew if the ref stands for another commit by now. If the
  origin cannot be reached the tree is used as it is, and the task's outcome has a note.
- *Reset.* Between two holders everything in the storage is removed, and the tree is made again and checked. Git is
  never started in a tree that a worker had. If something cannot be removed, MustReplace is raised.
- *Network.* Git reaches what the server's policy allows, through a proxy if that is a list.
- *Credentials* are in the environment of the one git process that needs them, and are offered to the repository's host
  alone. Keys for ssh are in a file in memory for as long as it runs. They never are in an argument, in the mirror, in
  the tree or in a message.

The storage of an instance holds `repo/`, the tree, and `home/`. The caller of `prepare` must have ended all processes
of the instance before, and runs the set-up command, which is the worker's own code, in the sandbox.

Never: follows a link in a tree, writes outside the storage, runs a hook, a filter or a setting that came with a
repository, follows submodules.
"""

from rota.runtime.workspace.credentials import Credentials
from rota.runtime.workspace.discard import discard
from rota.runtime.workspace.failures import MustReplace, WorkspaceError
from rota.runtime.workspace.mirror import Mirror, Source, WorkspaceLimits
from rota.runtime.workspace.network import GitNetwork
from rota.runtime.workspace.prepare import HOME, TREE, Finished, Prepared, RunSetup, prepare, prepared
from rota.runtime.workspace.refs import is_fixed
from rota.runtime.workspace.verify import is_open, verify

__all__ = [
    "HOME",
    "TREE",
    "Credentials",
    "Finished",
    "GitNetwork",
    "Mirror",
    "MustReplace",
    "Prepared",
    "RunSetup",
    "Source",
    "WorkspaceError",
    "WorkspaceLimits",
    "discard",
    "is_fixed",
    "is_open",
    "prepare",
    "prepared",
    "verify",
]
