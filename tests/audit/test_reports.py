"""
Reports by themselves: what one says before anything was found, each kind of damage, and the order of findings.
"""

import re
from pathlib import Path

import pytest

from tableorm import AuditReport, BuildReport, Damage
from tableorm.audit.ranges import KEPT, AuditRange, FailureCounts, RangeCounts, audit_ranges_of
from tableorm.audit.report import AuditCounts, Finding, make_report
from tableorm.stores import RowAddress
from tests.audit.foreign import Employee

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"

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


def test_a_report_of_nothing() -> None:
    """It counts nothing, has no rate, and its text has no cursor, which may be long."""
    audit = AuditReport(cursor=lambda: None)
    build = BuildReport(index="M.by_x", cursor=lambda: "text")

    zeros = "entities=0, requests=0, seconds=0.0"
    assert repr(audit) == f"AuditReport({zeros}, derived_rows=0, counts={{}}, findings=(), repaired=0, undecided=0)"
    assert repr(build) == f"BuildReport({zeros}, index='M.by_x', built=0, audit=None, readable=False)"
    assert (audit.rate, audit.found, audit.clean, build.complete, build.cursor) == (0.0, 0, True, False, "text")
    assert str(audit) == "0 entities and 0 derived rows checked: nothing found; 0 requests in 0.0 s"
    assert str(build) == "M.by_x: built for 0 of 0 entities, 0 requests in 0.0 s"
    assert build.to_dict() == {
        "entities": 0,
        "requests": 0,
        "seconds": 0.0,
        "index": "M.by_x",
        "built": 0,
        "audit": None,
        "readable": False,
        "complete": False,
    }


def test_counts_begin_with_nothing() -> None:
    """So do those of sweeps and rewrites, and what `take` leaves."""
    counts = AuditCounts(entities=3, built=2)
    assert counts.take() == AuditCounts(entities=3, built=2)

    zeros = "entities=0, requests=0, seconds=0.0"
    rest = "derived_rows=0, built=0, repaired=0, undecided=0, counts={}, findings=[]"
    assert repr(counts) == f"AuditCounts({zeros}, {rest})"
    assert repr(FailureCounts()) == f"FailureCounts({zeros}, failed=0, failures=[])"
    assert repr(RangeCounts()) == f"RangeCounts({zeros})"


def test_a_report_says_what_was_counted() -> None:
    """Each number, and how many findings there are of each kind of damage."""
    counts = AuditCounts(entities=1, requests=2, seconds=3.0, derived_rows=4, built=5, repaired=6, undecided=7)
    counts.counts = {"stale": 8, "gap": 9}

    numbers = "entities=1, requests=2, seconds=3.0, derived_rows=4, counts={'gap': 9, 'stale': 8}"
    assert repr(make_report(counts)) == f"AuditReport({numbers}, findings=(), repaired=6, undecided=7)"


def test_each_damage_says_what_repair_does() -> None:
    """Every kind has a remedy, and a line in the documentation."""
    assert {str(each): finding(each).remedy for each in Damage} == REMEDIES
    assert str(finding("gap", text="wrong")) == f"M.by_x ('p', 'r'): gap: wrong; {REMEDIES['gap']}"
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) >= set(REMEDIES)


def test_findings_of_one_entity_are_in_order() -> None:
    """By the declaration and then by the other row; those without one come first, in whatever order they were found."""
    counts = AuditCounts()
    given = [("b", "y"), ("a", "x"), ("b", None), (None, "z"), ("a", None), (None, None), ("b", "x")]
    for index, address in given:
        counts.record(finding(index=index, address=address))

    report = make_report(counts)

    ordered = [(None, None), (None, "z"), ("a", None), ("a", "x"), ("b", None), ("b", "x"), ("b", "y")]
    assert [(each.index, each.address) for each in report.findings] == ordered
    assert (report.counts, report.repaired, report.cursor) == ({"stale": 7}, 0, None)


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


@pytest.mark.parametrize("parallel", [1, 2, 3])
def test_ranges_for_some_workers(parallel: int) -> None:
    """One worker has one range; of several, who is done finds another. Together they are all partitions."""
    found = audit_ranges_of("Directory", [Employee.__schema__], parallel)

    assert len(found) == 1 if parallel == 1 else len(found) > parallel
    bounds = [each.partitions for each in found]
    assert (bounds[0].lower, bounds[-1].upper) == (None, None)
    assert [each.upper for each in bounds[:-1]] == [each.lower for each in bounds[1:]]
    assert found == [AuditRange(table="Directory", partitions=each, building=False, done=False) for each in bounds]
