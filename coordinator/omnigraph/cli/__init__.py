"""The command line: `omnigraph <command> <root> …`."""

from omnigraph.cli.app import main

__all__ = ["main"]
