"""The package finds its experiments; one is added as CONTRIBUTING says."""

from __future__ import annotations

import pytest

import experiments


def test_order_is_by_rank_without_those_on_request() -> None:
    assert experiments.ORDER[:3] == ("profiler", "decoders", "serialization")
    assert experiments.ORDER[-2:] == ("predict", "layers")
    assert experiments.ON_REQUEST == ("diagnose",)
    assert experiments.QUICK == ("profiler", "decoders", "serialization", "serial", "cpu")


def test_record_sources() -> None:
    assert experiments.record_sources("predict")[:2] == ("predict", "t4")
    assert experiments.record_sources("serial") == ("serial",)


@pytest.mark.parametrize("name", [*experiments.ORDER, *experiments.ON_REQUEST])
def test_every_table_has_a_constant(name: str) -> None:
    module = vars(experiments.load(name))
    constants = {
        csv
        for constant, value in module.items()
        if constant.endswith(("CSV", "CSVS"))
        for csv in (value.values() if isinstance(value, dict) else [value])
    }
    assert constants == set(module["TABLES"])
