"""
The text of a module of models.
"""

import json
import re
import textwrap
from collections.abc import Mapping, Sequence

import attrs

_IMPORTED = ("Entity", "Int32", "Mapped", "PropertyBag", "field")
_WIDTH = 118


@attrs.frozen
class ModelText:
    """
    A model.

    Args:
        name: Its name.
        table: Its table.
        keywords: The keywords of the class statement.
        fields: The declarations of its fields.
        remarks: Comments on it.
    """

    name: str
    table: str
    keywords: Mapping[str, str]
    fields: Sequence[str]
    remarks: Sequence[str] = ()


def quote(text: str) -> str:
    """Return a text as a module writes it."""
    found = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in found)


def write_module(
    doc: str, models: Sequence[ModelText], *, told_by: str | None = None, labels: Mapping[str, str] | None = None
) -> str:
    """
    Return the text of a module.

    Args:
        doc: What its docstring says.
        models: Its models.
        told_by: The property whose value tells the models; None if it is which properties there are.
        labels: The value or the property that tells each model, by its name; None if nothing of the kind does.
    """
    parts: list[str] = []
    if labels is not None:
        telling = (
            "next((model for name, model in MODELS.items() if name in bag), Entity)"
            if told_by is None
            else f"MODELS.get(bag.get({quote(told_by)}), Entity)"
        )
        parts.append(
            "def tell_model(bag: PropertyBag) -> type[Entity]:\n"
            f'    """Return the model of a row; Entity itself for a row of none of these."""\n    return {telling}'
        )
    parts += map(_write_model, models)
    if labels is not None:
        lines = "".join(f"    {quote(label)}: {name},\n" for name, label in labels.items())
        parts.append(f"MODELS: dict[object, type[Entity]] = {{\n{lines}}}")
    body = "\n\n\n".join(parts)
    if labels is not None and told_by is None:
        body = body.replace("MODELS: dict[object,", "MODELS: dict[str,")
    words = {*re.findall(r"\w+", re.sub(r'"(?:[^"\\]|\\.)*"|#.*', "", body))}
    heads = ["import datetime as dt"] if "dt" in words else []
    heads += ["from uuid import UUID"] if "UUID" in words else []
    tableorm = f"from tableorm import {', '.join(name for name in _IMPORTED if name in words)}"
    imports = "\n\n".join(["\n".join(heads), tableorm] if heads else [tableorm])
    names = ", ".join(sorted(quote(model.name) for model in models))
    return f'"""\n{_wrap(doc, "")}\n"""\n\n{imports}\n\n__all__ = [{names}]\n\n\n{body}\n'


def _write_model(model: ModelText) -> str:
    remarks = "".join(_wrap(remark, "# ") + "\n" for remark in model.remarks)
    keywords = "".join(f"    {name}={value},\n" for name, value in model.keywords.items())
    body = "".join(f"    {field}\n" for field in model.fields)
    doc = f'    """A row of the table {model.table}."""'
    return f"{remarks}class {model.name}(\n    Entity,\n{keywords}):\n{doc}\n\n{body}".rstrip()


def _wrap(text: str, start: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False, break_on_hyphens=False
    )
