"""From reports made in a test to the trace they give, read strictly, and what is in it."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nsys2prv.paraver.check import check_trace
from nsys2prv.trace.translate import Summary, translate
from nsys2prv.trace.translate_options import TranslateOptions
from support.report_builder import ReportBuilder
from support.whole_trace import WholeTrace, open_whole


def translate_reports(
    folder: Path, *builders: ReportBuilder, options: TranslateOptions | None = None, name: str = "out", form: str = ".sqlite"
) -> Summary:
    """Write reports and translate them together."""
    reports = [builder.write(folder / f"{name}{index}{form}") for index, builder in enumerate(builders)]
    return checked(translate(reports, folder / name, replace(options or TranslateOptions(), no_views=True)))


def trace_of(folder: Path, *builders: ReportBuilder, options: TranslateOptions | None = None, name: str = "out") -> WholeTrace:
    """The trace that reports give, open."""
    return open_whole(translate_reports(folder, *builders, options=options, name=name).prv)


def checked(summary: Summary) -> Summary:
    """The same summary, once the trace is found valid."""
    assert check_trace(summary.prv).violations == ()
    return summary


def translate_unaligned(folder: Path, *builders: ReportBuilder, options: TranslateOptions | None = None) -> Summary:
    """The same with clocks taken as they are: in small made reports they are right, and messages faster than real ones."""
    return translate_reports(folder, *builders, options=replace(options or TranslateOptions(), align="utc"))


def labels_of(trace: WholeTrace, event_type: int) -> dict[int, str]:
    """Labels of the values of an event type."""
    return dict(trace.labels.types[event_type].values or {})


def table_summary(summary: Summary, table: str, report: int = 0) -> dict[str, Any]:
    """The entry of one table of a report: its rows, by source and by reason where they are left out."""
    tables: list[dict[str, Any]] = summary.content["reports"][report]["tables"]
    return next(entry for entry in tables if entry["table"] == table)


class RankMessage(NamedTuple):
    """A message between ranks. Times are those of the trace, ns."""

    sender: int
    sent: int
    receiver: int
    waited: int
    received: int
    size: int
    tag: int


def rank_messages(summary: Summary) -> list[RankMessage]:
    """Messages of a trace in which each task is a rank, sorted."""
    found = open_whole(summary.prv).messages()
    assert (found["logical_send"] == found["physical_send"]).all()
    ranks = {task: entry["rank"] for task, entry in enumerate(summary.content["tasks"], start=1)}
    columns = ("send_task", "logical_send", "recv_task", "logical_recv", "physical_recv", "size", "tag")
    return sorted(
        RankMessage(ranks[sender], sent, ranks[receiver], waited, received, size, tag)
        for sender, sent, receiver, waited, received, size, tag in found.select(columns).iter_rows()
    )


def unmatched_messages(summary: Summary) -> tuple[dict[str, int], dict[str, int]]:
    """Sends and receives without a partner, by reason."""
    found = summary.content["messages"]["unmatched"]
    return found["sends"], found["receives"]


NONE: tuple[dict[str, int], dict[str, int]] = ({}, {})
"""Unmatched messages where every send has its receive."""
