"""
The kind of import contract that import-linter lacks: a package imports nothing of ours but what is listed.

A list of what is forbidden would have to grow with every new module, and would forget one.
"""

from collections.abc import Iterable
from typing import Any, cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.domain.imports import Module


class OnlyContract(Contract):
    """
    `source` and what it may import reach no other module of ours.

    Options:
        source: The package.
        allowed: Packages that it may import.
    """

    source = fields.ModuleField()
    allowed = fields.ListField(subfield=fields.ModuleField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: FBT001 - the base's signature
        """Find every import that the contract refuses."""
        source = cast("Module", self.source).name
        allowed = [module.name for module in cast("Iterable[Module] | None", self.allowed) or ()]
        ours = {name for name in graph.modules if not graph.is_module_squashed(name)}
        for name in (source, *allowed):
            if name not in ours:
                raise ValueError(f"contract {self.name!r} names {name!r}, which is no module: correct pyproject.toml")
        inside = sorted(name for name in ours if any(is_within(name, package) for package in (source, *allowed)))
        leaks = [
            f"{importer}:{details['line_number']}: {details['line_contents']}"
            for importer in inside
            for name in sorted((graph.find_modules_directly_imported_by(importer) & ours).difference(inside))
            for details in graph.get_import_details(importer=importer, imported=name)
        ]
        return ContractCheck(kept=not leaks, metadata={"source": source, "leaks": leaks})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print what was found."""
        metadata: dict[str, Any] = check.metadata
        output.print_error(f"{metadata['source']} reaches what it may not:")
        for leak in metadata["leaks"]:
            output.print_error(f"    {leak}")


def is_within(name: str, package: str) -> bool:
    """Whether the module is the package or in it."""
    return name == package or name.startswith(package + ".")
