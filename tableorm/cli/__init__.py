"""
The command line: `tableorm`, with its own commands and those that other packages register.
"""

from .command_line import COMMANDS, Command, main

__all__ = ["COMMANDS", "Command", "main"]
