"""All campaigns: a new one is a module beside this and its line here."""

from __future__ import annotations

from .campaign import Campaign
from .column_values import ColumnValues
from .damaged_bytes import DamagedBytes
from .hostile_options import HostileOptions
from .hostile_texts import HostileTexts
from .odd_paths import OddPaths
from .outputs import Outputs
from .resources import Resources
from .signals import Signals

CAMPAIGNS: tuple[type[Campaign], ...] = (
    DamagedBytes,
    ColumnValues,
    Signals,
    Outputs,
    Resources,
    OddPaths,
    HostileTexts,
    HostileOptions,
)
