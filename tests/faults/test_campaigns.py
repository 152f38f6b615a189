"""A few inputs of each campaign of random damage; `make fuzz` tries as many as there is time for."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.fuzz.campaigns import CAMPAIGNS, try_input

_SEED = 14


@pytest.mark.thorough
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_inputs_of_campaigns(campaign: str, number: int, tmp_path: Path) -> None:
    assert try_input(campaign, _SEED, number, tmp_path) is None
