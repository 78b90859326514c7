"""PSNR and fits of known samples."""

import math

import numpy as np
import pytest

from harness.measures import PSNR_CEILING_DB, psnr_db


def test_psnr_of_known_images() -> None:
    black = np.zeros((4, 4, 3), np.uint8)
    assert psnr_db(black, black) == PSNR_CEILING_DB
    assert psnr_db(black, black + np.uint8(255)) == pytest.approx(0)
    assert psnr_db(black + np.uint8(1), black) == pytest.approx(20 * math.log10(255))
    one_off = black.copy()
    one_off[0, 0, 0] = 200  # no wrap-around below zero, either way round
    expected = 10 * math.log10(255**2 / (200**2 / 48))
    assert psnr_db(one_off, black) == pytest.approx(expected)
    assert psnr_db(black, one_off) == pytest.approx(expected)


def test_psnr_refuses_two_shapes() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        psnr_db(np.zeros((2, 2, 3), np.uint8), np.zeros((3, 2, 3), np.uint8))
