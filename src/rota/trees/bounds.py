"""The bounds of files and trees. Standard library only, as all that runs inside."""

MEBIBYTE = 1024 * 1024
FILE_BYTES_MAX = 1024 * MEBIBYTE
"""Of one file that is read or written."""
ARCHIVE_BYTES_MAX = 1024 * MEBIBYTE
"""Of the files of one tree, together."""
ARCHIVE_MEMBERS_MAX = 100_000
ARCHIVE_STREAM_BYTES_MAX = ARCHIVE_BYTES_MAX + ARCHIVE_MEMBERS_MAX * 2048
"""What a tree that keeps the bounds can take as tar: its bytes, and what is around each member."""
ENTRIES_MAX = 10_000
"""Of a folder that is listed; that there are more is told, as of more than `ANSWER_BYTES_MAX`."""
ANSWER_BYTES_MAX = 4 * MEBIBYTE
"""Of what is said of one folder. What runs in the instance may say anything in place of our program."""
ENTRY_BYTES_MAX = 64 * 1024
"""Of what is said of one thing in a folder, and around all of them: each byte of a name and a target may take six."""
MESSAGE_CHARACTERS_MAX = 4096
"""Of what is said of a failure."""
PATH_BYTES_MAX = 4096
LINKS_MAX = 40
"""Links that are followed on the way to one file, as in the kernel."""
DEPTH_MAX = 200
"""Folders within each other, in a tree: each one holds a descriptor."""
PIECE_BYTES = 64 * 1024
EXTENDED_BYTES_MAX = 64 * 1024
"""Of what a tar says of one member beyond its header: long names."""
EXTENDED_LINES_MAX = 64
"""Of that: each takes a while to read."""
MODE_MASK = 0o777
"""Bits of a mode that are taken: nothing that is written runs as somebody else."""
