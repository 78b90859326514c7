"""Fixtures that tests of the product share with those of the harness, which list images."""

from tests.harness.engines.conftest import tiny as tiny
