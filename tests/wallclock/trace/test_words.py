"""How numbers and names read."""

import pytest

from wallclock.trace.words import count, digits, keep_together, percent, times


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.0004, "0"),
        (0.0126, "0.013"),
        (0.5, "0.5"),
        (0.9999, "1"),
        (7.0, "7"),
        (14.25, "14.2"),
        (99.94, "99.9"),
        (99.96, "100"),
        (3600.4, "3,600"),
    ],
)
def test_digits(value: float, text: str) -> None:
    assert digits(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.994, "1.99 ×"), (1.996, "2.0 ×"), (9.94, "9.9 ×"), (24.4, "24 ×")]
)
def test_times(value: float, text: str) -> None:
    assert times(value) == text


def test_percent() -> None:
    assert [percent(share) for share in (0, 0.004, 0.006, 0.714, 1)] == [
        "0 %",
        "< 1 %",
        "1 %",
        "71 %",
        "100 %",
    ]


def test_count() -> None:
    assert [count(1, "image"), count(1024, "image"), count(2, "process")] == [
        "1 image",
        "1,024 images",
        "2 processes",
    ]


def test_numbers_stay_with_their_unit() -> None:
    text = "waits 71 % of 3.2 s: 2560 × 1920 JPEGs for 224 px, 2 workers"
    joined = keep_together(text)
    assert joined.split(" ") == [
        "waits",
        "71\xa0%",
        "of",
        "3.2\xa0s:",
        "2560\xa0×\xa01920",
        "JPEGs",
        "for",
        "224\xa0px,",
        "2",
        "workers",
    ]
