"""
Inspection of tables that other programs have written: from rows to models, as the text of a Python module.

Pure functions; nothing here does I/O. The steps: `groups` divides the rows into kinds, `templates` finds the key
templates of each, `fields` the fields, `module_text` writes the module, and `propose` executes it and reads every row
with it.
"""

from .propose import Proposal, ProposedModel, propose

__all__ = ["Proposal", "ProposedModel", "propose"]
