"""Quantities, as Kubernetes reads them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.api.quantity import EXPONENT_MAX, is_quantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("1.5Gi", Fraction(3, 2) * 2**30),
        ("500m", Fraction(1, 2)),
        ("12e2", 1200),
        ("1E-2", Fraction(1, 100)),
        ("1E", 10**18),
        ("-.5", Fraction(-1, 2)),
        ("m", 0),
        ("+", 0),
        ("0.0000000001", Fraction(1, 10**9)),
        ("-0.0000000001", Fraction(-1, 10**9)),
        ("100Ei", 2**63 - 1),
        ("100E", 10**20),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str, amount: Fraction) -> None:
    assert parse_quantity(text).nanos == amount * 10**9


@pytest.mark.parametrize("text", ["", "1K", "1i", "1e", "1 k", "1.2.3", "--1", "1e3k", "abc", "1Kii"])
def test_what_is_no_quantity_is_an_error(text: str) -> None:
    assert not is_quantity(text)
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)


@given(whole=st.integers(0, 10**20), fraction=st.text("0123456789", max_size=9), power=st.sampled_from("kMGTPE"))
def test_a_decimal_suffix_multiplies(whole: int, fraction: str, power: str) -> None:
    factor = 1000 ** (1 + "kMGTPE".index(power))
    text = f"{whole}.{fraction}"
    assert parse_quantity(text + power).nanos == parse_quantity(text).nanos * factor


def test_an_exponent_beyond_its_bound_is_refused() -> None:
    assert is_quantity(f"1e{EXPONENT_MAX}")
    with pytest.raises(OverflowError, match="1e1001"):
        parse_quantity(f"1e{EXPONENT_MAX + 1}")
