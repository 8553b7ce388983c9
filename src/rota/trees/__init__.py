"""Trees of files as tar: one rule for all that is packed and unpacked, by whomever.

`rota cp`, the files of a claim, the files of an instance, and the code of functions go through here.

- One parser reads every tar (`archive`). Names are relative and have no `..`. Links lead into the tree, up first and
  then down; one that does not is refused, or left out and named where a tree is copied to a client. Hard links lead to
  files that the same tar has made. Devices, pipes, sparse files and members that go through a link are refused. What a
  tar says of all its members is not looked at.
- Members, bytes, depth and the length of names are bounded, for what is read as for what is written (`bounds`).
- Nothing is made through a link, whoever made it (`unpacking`), and a file appears whole (`replacing`).
- One writer packs every tree (`packing`), in one order, and follows no link; what is neither file, folder nor link is
  left out, and refused in code that is deployed (`rota.manifest.packing` says what goes into that).

Standard library only: it runs inside of instances.
"""
