"""The files of an instance, as the instance sees them: read, write, list, look at, remove, and whole trees as tar.

Promises:
- Everything is done *inside*: by a command in the namespaces of the instance, as its user, under its filter. So a path
  or a link leads where it leads the instance itself, and nowhere else. What comes back is trusted as the instance is.
- Where a process of Rota's can run inside (a sandbox, a worker's box, no isolation) that is `inside`, the one program
  that knows all operations. In a container it is the tools of its image (`shell`), for nothing else is there.
- Without isolation there are no namespaces, so the folder of the instance stands for them: it is where absolute paths
  begin, and what leads out of it is refused. Nothing is ever opened by a path there, but step by step (`walking`).
- A relative path begins where commands begin: in the working directory.
- A file is replaced whole, or not at all. A link at its place is replaced, and never written through.
- A tree that comes as tar is read by one parser (`archive`), which refuses names and links that leave it, devices, and
  members that go through a link. Only what it has read is unpacked, never the bytes as they came.
- Only regular files are read: a pipe or a device holds nobody up.
- Whoever cancels leaves neither a process nor half a file.

Never: trusts a size, a name or an end that the instance tells; holds a file or a tree in memory.
"""
