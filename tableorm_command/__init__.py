"""
The program `tableorm`. Importing its command line takes a moment, in which Ctrl-C ends it as at any other.
"""

import signal
import sys
from contextlib import suppress

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
    finally:
        # The outcome is reported. As Python ends, it would let the signal kill the process without a line.
        with suppress(ValueError):  # another thread than the main one
            signal.signal(signal.SIGINT, signal.SIG_IGN)
