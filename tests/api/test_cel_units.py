"""Durations, timestamps and quantities, as Go and Kubernetes read them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.api.cel import CelEvalError, compile  # noqa: A004
from rota.api.cel.quantity import is_quantity, parse_quantity
from rota.api.cel.times import parse_duration, parse_timestamp


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("-0", 0),
        ("1h30m", 5_400_000_000_000),
        ("1.5s", 1_500_000_000),
        (".5h", 1_800_000_000_000),
        ("1.h", 3_600_000_000_000),
        ("1us", 1_000),
        ("1µs", 1_000),
        ("-2ms", -2_000_000),
        ("0.3333333333333333333h", 1_200_000_000_000),
        ("-9223372036854775808ns", -(2**63)),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, ns: int) -> None:
    assert parse_duration(text).ns == ns


@pytest.mark.parametrize(
    "text", ["", "1", "h", ".h", "1d", "1 h", "1H", "1h-1m", "--1m", "1e3s", "9223372036854775808ns"]
)
def test_what_is_no_duration_is_an_error(text: str) -> None:
    with pytest.raises(CelEvalError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.5Z", -500_000_000),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000_000_000),
        ("2024-01-01T01:00:00+01:00", 1_704_067_200_000_000_000),
        ("2024-01-01T00:00:00.1234567899Z", 1_704_067_200_123_456_789),
    ],
)
def test_a_timestamp_is_read_to_the_nanosecond(text: str, ns: int) -> None:
    assert parse_timestamp(text).ns == ns


@pytest.mark.parametrize(
    "text",
    [
        "", "2024-01-01", "2024-02-30T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:60Z",
        "2024-01-01t00:00:00Z",
        "2024-01-01T00:00:00", "2024-01-01T00:00:00+25:00", "2024-01-01T00:00:00+0100", "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59-01:00",
    ],
)  # fmt: skip
def test_what_is_no_timestamp_is_an_error(text: str) -> None:
    with pytest.raises(CelEvalError):
        parse_timestamp(text)


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
    with pytest.raises(CelEvalError):
        parse_quantity(text)


@given(whole=st.integers(0, 10**20), fraction=st.text("0123456789", max_size=9), power=st.sampled_from("kMGTPE"))
def test_a_decimal_suffix_multiplies(whole: int, fraction: str, power: str) -> None:
    factor = 1000 ** (1 + "kMGTPE".index(power))
    text = f"{whole}.{fraction}"
    assert parse_quantity(text + power).nanos == parse_quantity(text).nanos * factor


@pytest.mark.parametrize(
    "rule",
    [
        "duration('1h') > duration('59m59s')",
        "duration('1h') + duration('30m') == duration('90m')",
        "duration('90m').getHours() == 1 && duration('-90m').getMinutes() == -90",
        "duration('1500ms').getMilliseconds() == 1500 && duration('1500ms').getSeconds() == 1",
        "string(duration('1h30m')) == '5400s' && string(duration('1ns')) == '0.000000001s'",
        "string(duration('-1500ms')) == '-1.5s'",
        "timestamp('2024-01-01T00:00:00Z') - timestamp('2023-12-31T23:00:00Z') == duration('1h')",
        "timestamp('2024-01-01T00:00:00Z') + duration('1h') == timestamp('2024-01-01T01:00:00Z')",
        "duration('1h') + timestamp(0) == timestamp('1970-01-01T01:00:00Z')",
        "timestamp('2024-01-01T00:00:00Z') - duration('1ns') < timestamp('2024-01-01T00:00:00Z')",
        "int(timestamp('1969-12-31T23:59:59.5Z')) == -1",
        "[duration('1m'), duration('1s')].min() == duration('1s')",
        "quantity('1.5Gi').isGreaterThan(quantity('1G')) && quantity('1').isLessThan(quantity('2'))",
        "quantity('1k') == quantity('1000') && quantity('1k') != quantity('1Ki')",
        "quantity('1').add(quantity('500m')).compareTo(quantity('1.5')) == 0",
        "quantity('1').sub(5) == quantity('-4') && quantity('1').add(5) == quantity('6')",
        "isQuantity('1Gi') && !isQuantity('1K')",
    ],
)
def test_rules_reckon_with_units(rule: str) -> None:
    assert compile(rule)(None) is True


@pytest.mark.parametrize(
    "rule",
    [
        "duration('x') == duration('1s')",
        "timestamp('9999-12-31T23:59:59Z') + duration('1s') > timestamp(0)",
        "timestamp('2024-01-01T00:00:00Z') - timestamp('0001-01-01T00:00:00Z') > duration('1s')",
        "duration('2562047h') + duration('2562047h') > duration('1s')",
        "-duration('1s') == duration('-1s')",
        "quantity('1') < quantity('2')",
        "quantity('1') + quantity('2') == quantity('3')",
        "quantity(1) == quantity('1')",
    ],
)
def test_units_that_do_not_fit_are_errors(rule: str) -> None:
    with pytest.raises(CelEvalError):
        compile(rule)(None)
