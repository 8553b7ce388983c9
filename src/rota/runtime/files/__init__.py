"""The files of an instance, as the instance sees them: read, write, list, stat, remove, and whole trees as tar.

- *Inside.* Each operation is a command in the namespaces of the instance, as its user, under its filter of system
  calls. A path or a link leads where it leads the instance itself, and nowhere else.
- *Below the folder.* Without isolation, absolute paths begin at the folder of the instance, and a path that leaves
  it is refused. No path is opened at once there, but name by name (`rota.trees.walking`).
- *Whole.* A file is replaced whole, or not at all. A link in its place is replaced, never written through.
- *Checked trees.* A tar is read by one parser (`rota.trees.archive`), and only members that it accepts are unpacked.
- *Regular files only* are read: a pipe or a device delays nobody.
- *Cancelled cleanly.* A cancelled operation leaves neither a process nor half a file.

Relative paths begin in the working directory of commands. Where a process of Rota can run inside (a sandbox, a worker's
box, no isolation), that is `inside`, the one program for all operations. In a container the tools of its image are used
(`shell`), since there is nothing else.

Never: trusts a size, a name or an end that the instance reports; holds a file or a tree in memory.
"""
