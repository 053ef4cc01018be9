"""
Reports by themselves: each kind of damage, and how much a report keeps.
"""

import re
from pathlib import Path

from tableorm import Damage
from tableorm.audit.ranges import KEPT, FailureCounts
from tableorm.audit.report import AuditCounts, Finding, make_report
from tableorm.stores import RowAddress

PAGE = Path(__file__).parents[2] / "docs" / "derived" / "audit.md"

REMEDIES = {
    "missing": "repair writes it",
    "stale": "repair replaces it by what the entity says",
    "orphan": "repair deletes it",
    "manifest": "repair corrects the manifest",
    "undeclared": "repair deletes the row and its entry in the manifest",
    "taken": "repair leaves that to you: change one of the two, then repair",
    "blocked": "repair leaves that to you: change the index's row_key, or remove that row, then repair",
    "foreign": "repair leaves that to you: find out who wrote the row, then delete it",
    "unreadable": "repair leaves that to you: correct the row, or the model, then repair",
    "unfinished": "repair does what is left to do, as a worker does",
    "gap": "repair trims the feed up to the last change that is missing; readers before it are told",
    "dangling": "repair leaves that to you: insert what is referred to, or refer to another, then repair",
}


def finding(damage: str = "stale", index: str | None = "by_x", address: str | None = "x", text: str = "") -> Finding:
    return Finding(
        damage=Damage(damage), model="M", index=index, partition_key="p", row_key="r", address=address, problem=text
    )


def test_each_damage_says_what_repair_does() -> None:
    """Every kind has a remedy, and a line in the documentation."""
    assert {str(each): finding(each).remedy for each in Damage} == REMEDIES
    assert str(finding("gap", text="wrong")) == f"M.by_x ('p', 'r'): gap: wrong; {REMEDIES['gap']}"
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) >= set(REMEDIES)


def test_a_report_holds_the_first_findings() -> None:
    """It counts all, also where the counts of two ranges are added, and keeps a thousand, as its documentation says."""
    counts = AuditCounts()
    for number in range(1_001):
        counts.record(finding(address=f"{number:04d}"))
    report = make_report(counts)
    assert (report.found, len(report.findings), report.findings[-1].address) == (1_001, 1_000, "0999")

    other = AuditCounts(counts={"gap": 2, "stale": 1})
    other.add(counts)
    assert other.counts == {"gap": 2, "stale": 1_002}
    other.add(counts)
    assert (len(other.findings), KEPT) == (1_000, 1_000)


def test_what_a_failure_says_is_cut_off() -> None:
    """The error of a row may quote keys of any length: 500 characters are kept, and of many failures the first."""
    counts = FailureCounts()
    for number in range(KEPT + 1):
        counts.record(RowAddress("T", "p", f"{number}"), ValueError("x" * 600))

    assert (counts.failed, len(counts.failures)) == (KEPT + 1, KEPT)
    assert str(counts.failures[0]) == f"('p', '0') of table T: ValueError: {'x' * 488}"
