"""Commands and output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from rota import __version__
from rota.api.crd import crds


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of `rota`."""
    parser = argparse.ArgumentParser(prog="rota", description="A local-first scheduling control plane.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("version", help="print the version")
    commands.add_parser("crds", help="print the kinds as CustomResourceDefinitions, for a Kubernetes API server")
    arguments = parser.parse_args(argv)
    if arguments.command == "version":
        print(__version__)
    else:
        json.dump({"apiVersion": "v1", "kind": "List", "items": crds()}, sys.stdout, indent=2)
        print()
    return 0
