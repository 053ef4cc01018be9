"""
What programs import that tests start.
"""

import subprocess
import sys
from pathlib import Path

from scripts.docs_pages import ROOT
from tests.children import environment


def test_programs_that_tests_start_import_the_code_beside_these(tmp_path: Path) -> None:
    """That code is under test, whatever is installed."""
    code = (
        "import tableorm, tableorm_local, tableorm_migrations as m, tests; print(tableorm_local.__file__, m.__file__)"
    )
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    places = [ROOT / "backends" / "tableorm_local", ROOT / "migrations" / "tableorm_migrations"]
    assert done.stdout.split() == [str(place / "__init__.py") for place in places]
