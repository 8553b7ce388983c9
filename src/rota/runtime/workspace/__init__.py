"""What a worker finds when it starts: a repository at a ref, with files and a set-up command; and how it is made anew.

- *Mirror*: one bare copy of a repository on the host, for all workers that may read it. Fetched by one at a time,
  within bounds of time and size. What is there is used while it is refreshed, and while its origin cannot be reached.
  Who may read it is part of its name (the namespace and Secret it is fetched with): no one gets by a mirror what their
  own credentials do not give.
- *Prepare* makes the tree from the mirror, with objects of its own. Sharing them with the mirror, by links or as
  alternates, would be faster; but a worker that is not kept apart by a uid could write to shared objects and so into
  every other worker's code, and a repack of the mirror would break trees that rely on it.
- *Current*, before a task: a tree that was made a while ago, of a branch or a tag, is made anew if that stands for
  another commit by now. Where the origin cannot be reached the tree is used as it is, and the task says so.
- *Again*, between two holders, in the same way. Nothing of the last one's is looked at, let alone run: git never is
  started in a tree that a worker had. Everything in the storage goes, and the tree is made again; what comes out is
  checked. What cannot be removed is an error that says so, and the instance has to be replaced.
- *Network*: git reaches what the server's policy allows, through a proxy if that is a list.
- *Credentials* are in the environment of the one git process that needs them, and are offered to the repository's host
  alone. Keys for ssh are in a file in memory for as long as it runs. They never are in an argument, in the mirror, in
  the tree or in a message.

The storage of an instance holds `repo/`, the tree, and `home/`. The processes of the instance must have ended before
`prepare`: that is for whoever runs them to see to. The set-up command is the worker's own code, and is run
by whoever calls, in the sandbox.

Never: follows a link in a tree, writes outside the storage, runs a hook, a filter or a setting that came with a
repository, follows submodules.
"""

from rota.runtime.workspace.credentials import Credentials
from rota.runtime.workspace.discard import discard
from rota.runtime.workspace.failures import MustReplace, WorkspaceError
from rota.runtime.workspace.limits import Limits
from rota.runtime.workspace.mirror import Mirror, Source
from rota.runtime.workspace.prepare import HOME, TREE, Finished, Prepared, RunSetup, prepare, prepared
from rota.runtime.workspace.reach import Reach
from rota.runtime.workspace.refs import is_fixed
from rota.runtime.workspace.verify import is_open, verify

__all__ = [
    "HOME",
    "TREE",
    "Credentials",
    "Finished",
    "Limits",
    "Mirror",
    "MustReplace",
    "Prepared",
    "Reach",
    "RunSetup",
    "Source",
    "WorkspaceError",
    "discard",
    "is_fixed",
    "is_open",
    "prepare",
    "prepared",
    "verify",
]
