"""
Print the lowest version of each dependency that pyproject.toml allows users, extras included, as pins for pip.
"""

import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def main() -> None:
    """Print one pin a line."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    for requirement in [*project["dependencies"], *extras]:
        name, bound, rest = requirement.partition(">=")
        version = rest.partition(",<")[0]
        if not bound or "," in version:
            raise SystemExit(
                f"pyproject.toml: {requirement!r} is not of the form NAME>=VERSION or NAME>=VERSION,<VERSION, so its "
                "lowest is unknown"
            )
        print(f"{name.partition('[')[0]}=={version}")  # a constraint has no extras


if __name__ == "__main__":
    main()
