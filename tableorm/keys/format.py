"""
What a key format is: how one field's value becomes part of a key, and back.

A format tells the template what it needs to be unambiguous: how wide its text is, which characters it can hold, whether
it keeps order, and whether the text holds the value in full.
"""

import contextlib
import enum
import re
from collections.abc import Callable
from typing import Any

import attrs

from ..protocol.filters import Op

DIGITS = frozenset("0123456789")


class Order(enum.Enum):
    """How the order of texts relates to the order of values."""

    SAME = "same"
    REVERSED = "reversed"
    NONE = "none"


@attrs.frozen(kw_only=True)
class Format:
    """
    How one field stands in a key.

    Args:
        text: The name of the format in messages.
        to_text: Makes a value text; its ValueError says what does not fit and why.
        from_text: Makes a text the value; ValueError if it is not the very text that `to_text` makes of one, because no
            `get` of the value would find the row.
        pattern: A regular expression for all its texts; for free text, for one character.
        atoms: The text as a sequence of character sets, one per position; None if its length varies.
        alphabet: The characters that it can hold; None for free text.
        order: Whether texts sort as values do.
        full: Whether the text holds the value completely.
        free: Whether it is free text, whose characters are escaped where they would be ambiguous.
        decimal: Whether it is an integer that stands for itself, padded or not.
        low: The smallest value that has a text, where values have bounds.
        high: The largest value that has a text, where values have bounds.
        buckets: How many texts a hash bucket has; 0 for other formats.
        each: Whether it writes one element of a list, so that an entity has a key for each of them.
        to_first_text: Makes the text of the first value that has one and is not below a value; None if all have one.
        to_last_text: Makes the text of the last one that is not above all that a value stands for; None if all have one
            and stand for themselves alone.
    """

    text: str
    to_text: Callable[[Any], str]
    from_text: Callable[[str], Any]
    pattern: str
    atoms: tuple[frozenset[str], ...] | None
    alphabet: frozenset[str] | None
    order: Order
    full: bool = True
    free: bool = False
    decimal: bool = False
    low: Any = None
    high: Any = None
    buckets: int = 0
    each: bool = False
    to_first_text: Callable[[Any], str] | None = None
    to_last_text: Callable[[Any], str] | None = None

    def writer(self, op: Op | None) -> Callable[[Any], str]:
        """Return what makes the text that a value is compared with by an operator."""
        if op in (Op.GT, Op.LE) and self.to_last_text is not None:
            return self.to_last_text
        if op in (Op.GE, Op.LT) and self.to_first_text is not None:
            return self.to_first_text
        return self.to_text

    def is_between(self, value: Any) -> bool:
        """Return whether a value is one of those between two that have texts, so that no key has it."""
        if self.to_first_text is None or self.to_last_text is None:
            return False
        with contextlib.suppress(ValueError):
            return self.to_first_text(value) != self.to_last_text(value)
        return False

    @property
    def bucket_texts(self) -> list[str]:
        """The texts of a hash bucket, in order."""
        return [f"{number:0{len(self.atoms or ())}d}" for number in range(self.buckets)]


def literal_format(text: str) -> Format:
    """Return the format of what is the same text in all keys."""
    return Format(
        text="literal",
        to_text=str,
        from_text=str,
        pattern=re.escape(text),
        atoms=tuple(map(frozenset, text)),
        alphabet=frozenset(text),
        order=Order.NONE,
        full=False,
    )


def fixed_format(shape: str, digits: str, **options: Any) -> Format:
    """
    Return a format of fixed width.

    Args:
        shape: What its texts look like, with a `#` for each digit; no key has that character.
        digits: The digits, as a regular expression has them: "0-9".
        options: What else a format says.
    """
    held = frozenset(filter(re.compile(f"[{digits}]").match, map(chr, range(128))))
    atoms = tuple(held if char == "#" else frozenset(char) for char in shape)
    runs = re.findall("#+|[^#]+", shape)
    pattern = "".join(f"[{digits}]{{{len(run)}}}" if run[0] == "#" else re.escape(run) for run in runs)
    return Format(pattern=pattern, atoms=atoms, alphabet=frozenset[str]().union(*atoms), **options)


def type_error(value: object, wanted: str, remedy: str = "") -> ValueError:
    """Return the error for a value of another type."""
    return ValueError(f"needs {wanted}, got {value!r} ({type(value).__name__}){remedy and f'; give {remedy}'}")


def unreachable(text: str, value: object, written: str, remedy: str = "") -> ValueError:
    """Return the error for a stored text of a value that keys hold as another text, with a further remedy."""
    return ValueError(
        f"keys hold {value!r} as {written!r}, not as {text!r}, so get() and conditions cannot find the row; write "
        f"the row under that key, {remedy}or read it as a PropertyBag"
    )
