"""All campaigns: a new one is a module beside this and its line here."""

from __future__ import annotations

from .campaign import Campaign
from .column_values import ColumnValues
from .damaged_bytes import DamagedBytes
from .family_rules import FamilyRules
from .folder_tables import FolderTables
from .hostile_options import HostileOptions
from .hostile_texts import HostileTexts
from .odd_paths import OddPaths
from .outputs import Outputs
from .resources import Resources
from .results_json import ResultsJson
from .signals import Signals
from .sqlite_objects import SqliteObjects
from .trace_bombs import TraceBombs
from .trace_mutations import TraceMutations

CAMPAIGNS: tuple[type[Campaign], ...] = (
    DamagedBytes,
    ColumnValues,
    SqliteObjects,
    FolderTables,
    Signals,
    Outputs,
    Resources,
    OddPaths,
    HostileTexts,
    HostileOptions,
    TraceMutations,
    TraceBombs,
    ResultsJson,
    FamilyRules,
)
