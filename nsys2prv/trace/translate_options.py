"""Options of a translation."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nsys2prv.run.options import SELECT, TRACE, NvtxRange, ReadOptions, duration, name_list, nvtx_range, option


def _source_names() -> Iterable[str]:
    from nsys2prv.sources.registry import NAMES

    return NAMES


@dataclass(frozen=True)
class TranslateOptions(ReadOptions):
    """What to translate and how. Names of sources are those of `nsys2prv.sources.registry.NAMES`."""

    only: tuple[str, ...] = option(
        (), "Sources to translate, separated by commas (default: all).", "NAMES", name_list, names=_source_names, group=SELECT
    )
    skip: tuple[str, ...] = option(
        (), "Sources to leave out, separated by commas.", "NAMES", name_list, names=_source_names, group=SELECT
    )
    nvtx: NvtxRange | None = option(
        None, "Keep only the time inside NVTX ranges of this name (wildcards: * ?).", "NAME[@DOMAIN]", nvtx_range, group=SELECT
    )
    min_duration: int = option(0, "Leave out shorter intervals: 10us.", "TIME", duration, group=SELECT)
    fold_streams: bool = option(False, "One row for all streams of a device; more only where events overlap.", group=TRACE)
    critical_path: bool = option(
        False, "Mark the critical path: where it is at each time, and a line where it goes to another row.", group=TRACE
    )
    labels: Path | None = option(
        None, "Use the numbers that names have in an earlier trace, so that the two compare.", "EARLIER.pcf", Path, group=TRACE
    )
    no_views: bool = option(False, "Write no views (OUT.cfgs).", group=TRACE)
    gzip: bool = option(False, "Write OUT.prv.gz, which Paraver reads too.", short="-z", group=TRACE)
    force: bool = option(False, "Replace an existing output.", group=TRACE)
