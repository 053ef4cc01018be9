"""
Samples of tables: each row has the same weight, wherever its keys are.
"""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm.advice.key_tree import KeyTree
from tableorm.advice.totals import PartitionCounts, Totals
from tableorm.keys.ranges import KeyPosition
from tests.advice.rows_in_memory import SHAPES, RowsInMemory, make_keys
from tests.torture import Rounds

PAGE = 20


async def divide_all(tree: KeyTree) -> Totals:
    """Descend until all groups of a tree are known, and return what they have counted."""
    while not tree.root.known:
        await tree.descend()
    assert tree.find_error(lambda totals: totals.rows) == 0
    assert tree.count_rows() == tree.sum_up().rows
    return tree.sum_up()


TEXTS = st.text(st.sampled_from("aab_0\ud7ff\ue000\uffff\U0001f600"), max_size=5)


@given(st.sets(st.tuples(TEXTS, TEXTS), max_size=60), st.integers(1, 7))
async def test_each_row_is_in_one_group(keys: set[KeyPosition], page: int) -> None:
    """The groups of a tree have each row, and each partition, exactly once, whatever the keys are."""
    table = RowsInMemory(keys)

    totals = await divide_all(KeyTree(table.read, random.Random(0), page))

    assert totals.rows == len(keys)
    assert totals.partitions == len({partition for partition, _ in keys})
    assert {kind: rows for kind, (rows, _) in totals.kinds.items()} == {
        kind: sum(row[:1] == kind for _, row in keys) for kind in {row[:1] for _, row in keys}
    }
    assert dict(totals.places.find_largest(100)) == {
        name: sum(partition == name for partition, _ in keys) for name in {partition for partition, _ in keys}
    }


@pytest.mark.parametrize("shape", SHAPES)
async def test_descents_are_fair(shape: str, rounds: Rounds) -> None:
    """Their estimates are right on the average, after one descent and after several, and so is what they may be off."""
    keys = make_keys(shape, 2_000)
    table = RowsInMemory(keys)
    for descents in (1, 5):
        found: list[float] = []
        errors: list[float] = []
        for seed in range(rounds(30, 1_000)):
            tree = KeyTree(table.read, random.Random(seed), PAGE)
            for _ in range(descents):
                await tree.descend()
            found.append(tree.sum_up().rows)
            errors.append(found[-1] * tree.find_error(lambda totals: totals.rows))
        spread = statistics.stdev(found)

        assert abs(statistics.fmean(found) - len(keys)) <= 4 * spread / len(found) ** 0.5 + 1
        if descents > 1:
            assert spread / 4 <= statistics.fmean(errors) + 0.02 * len(keys)


@pytest.mark.parametrize("shape", ["few large partitions", "entities and entries", "uneven users"])
async def test_the_told_error(shape: str, rounds: Rounds) -> None:
    """
    The truth is within what an estimate may be off in two of three samples or more, unless a few parts that are hard to
    reach have most of the rows; then there is always at least what was counted.
    """
    keys = make_keys(shape, 10_000)
    table = RowsInMemory(keys)
    within, samples = 0, rounds(12, 400)
    for seed in range(samples):
        tree = KeyTree(table.read, random.Random(seed), PAGE)
        for _ in range(12):
            await tree.descend()
        found = tree.sum_up().rows
        within += abs(found - len(keys)) <= found * tree.find_error(lambda totals: totals.rows)
        assert 200 <= tree.count_rows() <= len(keys)

    if shape != "uneven users":
        assert within / samples >= 2 / 3


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_descent_costs_little(shape: str) -> None:
    """Its requests grow with the length of keys, and not with the rows: a part is divided by one request or so each."""
    table = RowsInMemory(make_keys(shape, 20_000))
    tree = KeyTree(table.read, random.Random(1), PAGE)

    await tree.descend()

    assert table.requests < 150  # of 1,000 pages


# Partitions and prefixes


@given(
    st.dictionaries(st.text("ab", min_size=1, max_size=6), st.integers(1, 30), max_size=30),
    st.integers(1, 100),
)
def test_prefixes(partitions: dict[str, int], least: int) -> None:
    """Those are found that have so many rows even without the longer ones, and the partitions, that have as many."""
    counts = PartitionCounts()
    for partition, rows in partitions.items():
        counts.add(partition, rows)

    left = {partition: rows for partition, rows in partitions.items() if rows < least}
    wanted: dict[str, float] = {}
    for length in range(6, 0, -1):
        for prefix in {partition[:length] for partition in left if len(partition) >= length}:
            inside = [partition for partition in left if partition.startswith(prefix)]
            if sum(left[partition] for partition in inside) >= least:
                wanted[prefix] = sum(rows for partition, rows in partitions.items() if partition.startswith(prefix))
                for partition in inside:
                    del left[partition]
    assert dict(counts.find_prefixes(least)) == wanted


def test_many_partitions() -> None:
    """Of more partitions than are remembered the largest are known exactly, and prefixes nearly."""
    counts = PartitionCounts()
    for number in range(20_000):
        counts.add(f"user{number:06d}", 100 if number % 2_000 == 7 else 1)
    for number in range(5_000):
        counts.add(f"tenant{number:06d}", 4)

    assert counts.find_largest(10) == [(f"user{number:06d}", 100) for number in range(7, 20_000, 2_000)]
    assert dict(counts.find_prefixes(12_000)) == pytest.approx({"user0": 20_990, "tenant00": 20_000}, rel=0.01)
