"""Reports that several tests need."""

from collections.abc import Sequence

import polars as pl

from support.report_builder import ReportBuilder


def repeated(builder: ReportBuilder, times: int, tables: Sequence[str], period: int) -> dict[str, pl.DataFrame]:
    """Tables of a report where those named repeat every `period` ns; correlation ids move on with them."""
    copies = pl.DataFrame({"copy": range(times)})
    frames = builder.tables()
    for name in tables:
        frame = frames[name]
        step = int(frame["correlationId"].max())  # type: ignore[arg-type]
        frames[name] = copies.join(frame, how="cross").select(
            pl.col("start", "end") + pl.col("copy") * period,
            pl.col("correlationId") + pl.col("copy") * step,
            pl.exclude("start", "end", "correlationId", "copy"),
        )
    return frames
