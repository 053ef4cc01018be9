"""
Print the lowest version of each core dependency that pyproject.toml allows, as pins for pip.
"""

import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def main() -> None:
    """Print one pin a line."""
    for requirement in tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]:
        name, bound, version = requirement.partition(">=")
        if not bound or "," in version:
            raise SystemExit(
                f"pyproject.toml: {requirement!r} is not of the form NAME>=VERSION, so its lowest is unknown"
            )
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
