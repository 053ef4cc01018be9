"""
Logs of what messages and rows say, which anybody may have written who can put a message or write a row.
"""

import logging

from ..protocol.redaction import escape_unprintable

_formatter = logging.Formatter()


def make_logger(name: str) -> logging.Logger:
    r"""
    Return a logger that writes control characters as `\uXXXX`, also those of errors, so that no text of another program
    looks like a line of the log. Lines of a traceback are indented.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_escape)
    return logger


def _escape(record: logging.LogRecord) -> bool:
    record.msg, record.args = escape_unprintable(record.getMessage()), None
    if record.exc_info:
        lines = _formatter.formatException(record.exc_info).split("\n")
        record.exc_text = "\n".join(f"  {escape_unprintable(line)}" for line in lines)
    return True
