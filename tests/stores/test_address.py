"""The address of a row."""

import json
import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm.stores import RowAddress

texts = st.text(st.characters(exclude_categories=["Cs"]))
addresses = st.builds(RowAddress, texts, texts, texts)


@given(addresses)
def test_stored_text_is_a_json_array_and_comes_back(address: RowAddress) -> None:
    """The stored text is the JSON array of table, PartitionKey and RowKey, and gives an equal address."""
    text = address.to_json()

    back = RowAddress.from_json(text)
    assert json.loads(text) == [address.table, address.partition_key, address.row_key]
    assert (back, hash(back)) == (address, hash(address))
    assert pickle.loads(pickle.dumps(address)) == address


@pytest.mark.parametrize(
    "text", ["", "{}", "null", '["T", "p"]', '["T", "p", "r", "more"]', '["T", "p", 1]', '["T", "p", null]']
)
def test_other_text_is_no_address(text: str) -> None:
    """Anything but an array of three strings is rejected."""
    with pytest.raises(msgspec.DecodeError):
        RowAddress.from_json(text)


def test_address_of_a_row_reads_its_keys() -> None:
    """The address of a row has the row's keys, and that of a row beside it differs in its RowKey alone."""
    address = RowAddress.of_row("Employee", {"PartitionKey": "Sales", "RowKey": "7", "Age": 41})

    assert address == RowAddress("Employee", "Sales", "7")
    assert address == RowAddress.of(address)
    assert address.beside("8") == RowAddress("Employee", "Sales", "8")
    assert str(address) == "('Sales', '7') in table Employee"


def test_letter_case_counts_in_keys_and_not_in_the_name_of_a_table() -> None:
    """Addresses whose tables differ in letter case alone are of one row, although they are not equal."""
    address, other = RowAddress("Employee", "Sales", "7"), RowAddress("EMPLOYEE", "Sales", "7")

    assert address.is_same(other)
    assert address != other
    assert not address.is_same(RowAddress("Employee", "sales", "7"))
    assert not address.is_same(RowAddress("Employee", "Sales", "8"))
    assert not address.is_same(RowAddress("Employees", "Sales", "7"))
