"""The command line: ``tlkit --help``."""

from tlkit.cli.app import main

__all__ = ["main"]
