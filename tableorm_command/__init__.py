"""
The program `tableorm`. Importing its command line takes a moment, in which Ctrl-C ends it as at any other.
"""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line, and return the exit status."""
    try:
        from tableorm.cli import main as run  # noqa: PLC0415 - see above

        return run()
    except KeyboardInterrupt:
        if "--traceback" in sys.argv:
            raise
        sys.stderr.write("tableorm: interrupted; run it again\n")
        return 130
