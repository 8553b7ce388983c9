"""Trees of files as tar: one reader and one writer for `rota cp`, files of claims and instances, and code of functions.

- *One parser* reads every tar (`archive`). Names are relative and have no `..`. Links lead into the tree, up first and
  then down; any other link is refused, or left out and reported where a tree is copied to a client. Hard links lead to
  files of the same tar. Devices, pipes, sparse files and members that go through a link are refused. Global extended
  headers are ignored.
- *Bounded.* Members, bytes, depth and the length of names have limits, for reading and for writing (`bounds`).
- *No way through a link.* Nothing is made through a link, whoever made it (`unpacking`), and a file appears whole
  (`replacing`).
- *One writer* packs every tree (`packing`), in one order, and follows no link. Entries that are neither file, folder
  nor link are left out; in deployed code they are refused (`rota.manifest.packing`).

Standard library only: it runs inside of instances.
"""
