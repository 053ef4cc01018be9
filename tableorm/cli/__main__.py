"""
`python -m tableorm.cli`, which is `tableorm` where its script is not on the path.
"""

import sys

from .command_line import main

sys.exit(main())
