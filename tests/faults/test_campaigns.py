"""A few inputs of each campaign of random damage; `make fuzz` tries as many as there is time for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.fuzz.campaigns import CAMPAIGNS, try_input
from faults.fuzz.commands import Commands

_SEED = 14


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with Commands() as commands:
        yield commands


@pytest.mark.thorough
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_inputs_of_campaigns(campaign: str, number: int, commands: Commands, tmp_path: Path) -> None:
    assert try_input(campaign, _SEED, number, commands, tmp_path) is None
