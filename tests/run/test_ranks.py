"""Who is who over all reports: ranks, hosts, whether they are of one run; broken ones among them; limits."""

import gc
import json
import re
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support import few_of, rest
from support.command_line import CommandLine
from support.failed_runs import sentence
from support.report_builder import ReportBuilder
from support.traces import checked
from support.whole_trace import open_whole

from nsys2prv.api.runs import open_run
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.errors import DamagedReport, InconsistentRun, TooManyRows, UnrelatedReports, UsageError
from nsys2prv.exports import open_report
from nsys2prv.exports.tables import Lookups
from nsys2prv.paraver import trace_format
from nsys2prv.run.open import BrokenReports
from nsys2prv.trace.translate import Summary, translate
from nsys2prv.trace.translate_options import TranslateOptions

DONE, USAGE, BAD_REPORT, INCONSISTENT, LEFT_OUT = 0, 2, 3, 9, 10
START = 1_700_000_000_000_000_000
"""UTC at time 0 of a report, ns."""


def with_call(report: ReportBuilder) -> ReportBuilder:
    return report.os_call("read", 0, 1000)


def run(
    tmp_path: Path, reports: dict[str, ReportBuilder], options: TranslateOptions | None = None, name: str = "out"
) -> Summary:
    """The trace of reports that have one call each, by name of the file."""
    folder = tmp_path / name
    folder.mkdir()
    paths = []
    for path, report in reports.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        paths.append(with_call(report).write(folder / path))
    return checked(translate(paths, folder / "trace", replace(options or TranslateOptions(), no_views=True)))


def findings(summary: Summary) -> dict[str, str]:
    """What is odd, by what it is about; the same stands among the warnings."""
    found = {finding["about"]: finding["text"] for finding in summary.content["run"]["findings"]}
    assert set(found.values()) <= set(summary.content["warnings"])
    return found


def ranks(summary: Summary) -> list[int | None]:
    return [task["rank"] for task in summary.content["tasks"]]


def sources_of_ranks(summary: Summary) -> set[str]:
    return {report["rank_source"] for report in summary.content["reports"]}


def hosts(summary: Summary) -> list[str]:
    """Node of each report, in the order of their paths."""
    return [report["host"] for report in summary.content["reports"]]


@pytest.mark.parametrize(
    ("environment", "source", "size"),
    [
        ({"SLURM_PROCID": "{}", "SLURM_NTASKS": "4"}, "SLURM (SLURM_PROCID)", 4),
        ({"SLURM_PROCID": "{}", "SLURM_NTASKS": "64", "SLURM_STEP_NUM_TASKS": "4"}, "SLURM (SLURM_PROCID)", 4),
        ({"OMPI_COMM_WORLD_RANK": "{}", "OMPI_COMM_WORLD_SIZE": "4"}, "Open MPI (OMPI_COMM_WORLD_RANK)", 4),
        ({"PMI_RANK": "{}", "PMI_SIZE": "4"}, "PMI (PMI_RANK)", 4),
        ({"RANK": "{}", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}, "torchrun (RANK)", 4),
        ({"MV2_COMM_WORLD_RANK": "{}", "MV2_COMM_WORLD_SIZE": "4"}, "MVAPICH (MV2_COMM_WORLD_RANK)", 4),
        ({"PMIX_RANK": "{}"}, "PMIx (PMIX_RANK)", 2),
        ({"RANK": "{}"}, "environment (RANK)", 2),
    ],
)
def test_each_launcher_tells_rank_and_size(tmp_path: Path, environment: dict[str, str], source: str, size: int) -> None:
    reports = {
        f"{rank}.sqlite": ReportBuilder(
            pid=10 + rank, host=f"n{rank}", environment={name: value.format(rank) for name, value in environment.items()}
        )
        for rank in (1, 0)
    }
    found = run(tmp_path, reports)
    assert ranks(found) == [0, 1]
    assert sources_of_ranks(found) == {source}
    assert found.content["run"]["size"] == size
    assert found.content["run"]["missing"] == list(range(2, size))


@pytest.mark.parametrize("environment", [{"RANK": "0"}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_TASK_PID": "9"}])
def test_one_rank_does_not_tell_of_how_many(environment: dict[str, str], tmp_path: Path) -> None:
    found = run(tmp_path, {"a.sqlite": ReportBuilder(environment=environment)})
    assert (found.content["run"]["ranks"], found.content["run"]["size"]) == ([0], None)
    assert "rank 0, of how many is not known, from" in found.as_text()


def test_a_run_has_as_many_ranks_as_are_known_whichever_are_selected(tmp_path: Path) -> None:
    reports = {f"{rank}.sqlite": ReportBuilder(pid=10 + rank, environment={"PMIX_RANK": str(rank)}) for rank in range(4)}
    assert run(tmp_path, reports, TranslateOptions(ranks=frozenset({1, 2}))).content["run"]["size"] == 4


def test_a_launcher_that_gave_all_the_same_rank_tells_nothing(tmp_path: Path) -> None:
    # Somebody's profile exports RANK=0 and WORLD_SIZE=1 for runs on one GPU.
    left_over = {"RANK": "0", "WORLD_SIZE": "1"}
    reports = {f"{rank}.sqlite": ReportBuilder(pid=10 + rank, rank=rank, ranks=3, environment=left_over) for rank in (0, 1, 2)}
    found = run(tmp_path, reports)
    assert ranks(found) == [0, 1, 2]
    assert sources_of_ranks(found) == {"SLURM (SLURM_PROCID)"}
    assert findings(found) == {}


def launched_by(rank: int, other: int, ranks: int = 2, others: int = 2) -> ReportBuilder:
    """A report with a rank by torchrun, and one by SLURM."""
    environment = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "SLURM_PROCID": str(other), "SLURM_NTASKS": str(others)}
    return ReportBuilder(pid=10 + rank, environment=environment)


def test_launchers_that_gave_different_ranks_are_named_and_the_innermost_counts(tmp_path: Path) -> None:
    found = run(tmp_path, {f"{rank}.sqlite": launched_by(rank, 1 - rank) for rank in (0, 1)})
    assert [report["ranks"] for report in found.content["reports"]] == [[0], [1]]
    text = findings(found)["conflicting ranks"]
    assert text.startswith("2 reports with another rank by SLURM (SLURM_PROCID) than by torchrun (RANK): the latter is used")
    assert "0.sqlite: 0, not 1" in text
    alone = run(tmp_path, {"a.sqlite": launched_by(1, 3, 4, 4)}, name="alone")
    assert findings(alone)["conflicting ranks"].startswith("1 report with another rank by SLURM (SLURM_PROCID) than by")


@pytest.mark.parametrize(
    "reports",
    [
        # One torchrun on each node, which starts a process for each GPU.
        [launched_by(rank, rank // 2, 4, 2) for rank in range(4)],
        # An mpirun in a job script: all inherit the rank of the script.
        [launched_by(rank, 0, 2, 2) for rank in range(2)],
        [launched_by(1, 0, 2, 2)],
        [launched_by(rank, rank, 2, 2) for rank in range(2)],
    ],
)
def test_a_launcher_around_another_one_contradicts_nothing(tmp_path: Path, reports: list[ReportBuilder]) -> None:
    found = run(tmp_path, {f"{index}.sqlite": report for index, report in enumerate(reports)})
    assert "conflicting ranks" not in findings(found)


def test_ranks_of_mpi_count_before_the_launcher_and_know_the_size_of_the_run(tmp_path: Path) -> None:
    report = ReportBuilder(pid=10, environment={"SLURM_PROCID": "0", "SLURM_NTASKS": "1"})
    report.process(11)
    report.mpi_rank(0, pid=10, tid=10).mpi_rank(1, pid=11, tid=11)
    report.communicator(rank=0, size=2).communicator(rank=1, size=2).os_call("read", 0, 9, pid=11, tid=11)
    found = run(tmp_path, {"both.sqlite": report})
    assert ranks(found) == [0, 1]
    assert found.content["run"] == {"ranks": [0, 1], "size": 2, "missing": [], "findings": []}


def test_processes_that_read_data_for_a_rank_do_not_take_its_rank_away(tmp_path: Path) -> None:
    report = ReportBuilder(rank=5, pid=10)
    report.gpu(0)
    for pid in (11, 12):
        report.process(pid)
        report.os_call("read", 0, 9, pid=pid, tid=pid)
    report.kernel("k", 0, 9)
    assert [(task["pid"], task["rank"]) for task in run(tmp_path, {"a.sqlite": report}).content["tasks"]] == [
        (10, 5), (11, None), (12, None),
    ]  # fmt: skip


def test_a_pattern_takes_ranks_from_paths_whatever_the_reports_say(tmp_path: Path) -> None:
    reports = {f"node{node}/gpu{gpu}.sqlite": ReportBuilder(pid=10 * node + gpu, host=f"n{node}", rank=7, ranks=8)
               for node in (0, 1) for gpu in (0, 1)}  # fmt: skip
    found = run(tmp_path, reports, TranslateOptions(rank_pattern=r"node1/gpu(\d)"))
    assert sources_of_ranks(found) == {"--rank-pattern", "SLURM (SLURM_PROCID)"}
    assert ranks(found) == [0, 1, 7, 7]
    assert "2 reports do not match --rank-pattern" in findings(found)["unknown ranks"]
    assert "rank is in more than one report (7" in findings(found)["duplicate ranks"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (TranslateOptions(rank_pattern="rank(\\d+"), "no regular expression of Rust (unclosed group)"),
        (TranslateOptions(rank_pattern="rank\\d+"), "it has 0 groups"),
        (TranslateOptions(rank_pattern="(r)ank(\\d+)"), "it has 2 groups"),
        (TranslateOptions(rank_pattern="nothing(\\d+)"), "no path of a report matches"),
        (TranslateOptions(rank_pattern="(rank)"), "finds 'rank', which is not a number"),
        (TranslateOptions(host_pattern="(a)(b)"), "it has 2 groups"),
        (TranslateOptions(host_pattern="nid001,nid002"), "no path of a report matches"),
        (TranslateOptions(host_pattern=","), "names of hosts"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_named(tmp_path: Path, options: TranslateOptions, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        run(tmp_path, {"rank0.sqlite": ReportBuilder()}, options)


def test_names_of_files_are_used_when_nothing_else_tells_and_it_is_said(tmp_path: Path) -> None:
    reports = {f"app_rank{rank}.sqlite": ReportBuilder(pid=10 + rank, host=f"n{rank}") for rank in (11, 2)}
    found = run(tmp_path, reports)
    assert ranks(found) == [2, 11]
    assert sources_of_ranks(found) == {"name of the file"}
    assert "2 reports do not contain a rank: it is taken from the name of the file" in findings(found)["ranks by name"]


@pytest.mark.parametrize(
    "names", [("a/rank0.sqlite", "b/rank0.sqlite"), ("rank0.sqlite", "other.sqlite"), ("crank1.sqlite", "crank2.sqlite")]
)
def test_names_that_do_not_tell_ranks_of_all_are_not_guessed_from(tmp_path: Path, names: tuple[str, str]) -> None:
    found = run(tmp_path, {name: ReportBuilder(pid=10 + index) for index, name in enumerate(names)})
    assert ranks(found) == [None, None]
    assert findings(found) == {}


def test_a_report_without_a_rank_among_ranks_is_named(tmp_path: Path) -> None:
    reports = {"a.sqlite": ReportBuilder(rank=0, ranks=1), "login.sqlite": ReportBuilder(pid=7, host="login")}
    found = run(tmp_path, reports)
    assert ranks(found) == [0, None]
    assert "login.sqlite" in findings(found)["unknown ranks"]


@pytest.mark.parametrize(
    ("reports", "missing"),
    [
        ([{"rank": rank, "ranks": 8} for rank in (0, 3)], "ranks 1-2,4-7 of 8 are not among the reports"),
        # Without a size, a gap is a missing rank.
        ([{"environment": {"PMIX_RANK": rank}} for rank in "02"], "rank 1 of 3 is not among the reports"),
    ],
)
def test_missing_ranks_are_counted(tmp_path: Path, reports: list[dict[str, Any]], missing: str) -> None:
    builders = {f"{index}.sqlite": ReportBuilder(pid=10 + index, **arguments) for index, arguments in enumerate(reports)}
    assert findings(run(tmp_path, builders))["missing ranks"] == missing


def test_of_chosen_ranks_only_these_can_be_missing(tmp_path: Path) -> None:
    reports = {f"{rank}.sqlite": ReportBuilder(pid=10 + rank, rank=rank, ranks=8) for rank in (0, 1, 3)}
    found = run(tmp_path, reports, TranslateOptions(ranks=frozenset({0, 1})))
    assert ranks(found) == [0, 1]
    assert findings(found) == {}
    found = run(tmp_path, reports, TranslateOptions(ranks=frozenset({0, 2})), "other")
    assert findings(found)["missing ranks"] == "rank 2 of 8 is not among the reports"
    found = run(tmp_path, reports, TranslateOptions(ranks=frozenset({0, *range(8, 90)})), "outside")
    assert findings(found)["missing ranks"] == "ranks 8-89 are not among the reports"


def test_duplicate_ranks_are_named_with_their_reports(tmp_path: Path) -> None:
    reports = {f"{run}{rank}.sqlite": ReportBuilder(pid=10 + rank, rank=rank, ranks=2, host=run)
               for run in "ab" for rank in (0, 1)}  # fmt: skip
    found = run(tmp_path, reports)
    assert findings(found)["duplicate ranks"].startswith("2 ranks are in more than one report (0-1; rank 0: ")
    assert [(task["rank"], task["node"]) for task in found.content["tasks"]] == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]


def two(**differing: tuple[object, object]) -> dict[str, ReportBuilder]:
    """Two ranks of one run on two hosts that differ in the arguments given."""
    return {
        f"{rank}.sqlite": ReportBuilder(
            **{"rank": rank, "ranks": 2, "host": f"n{rank}", **{name: values[rank] for name, values in differing.items()}}  # type: ignore[arg-type]
        )
        for rank in (0, 1)
    }


@pytest.mark.parametrize("variable", ["SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", *rest("PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")])
def test_reports_of_different_jobs_are_told(tmp_path: Path, variable: str) -> None:
    reports = two(environment=({variable: "4711"}, {variable: "4712"}))
    found = run(tmp_path, reports, TranslateOptions(unrelated=True))
    assert "4711: 1 report" in findings(found)["different runs"]
    assert "4712: 1 report" in findings(found)["different runs"]


def test_parts_of_a_heterogeneous_job_are_one_run(tmp_path: Path) -> None:
    parts = ({"SLURM_JOB_ID": "1", "SLURM_HET_JOB_ID": "1"}, {"SLURM_JOB_ID": "2", "SLURM_HET_JOB_ID": "1"})
    assert findings(run(tmp_path, two(environment=parts))) == {}


def test_runs_of_different_size_are_told(tmp_path: Path) -> None:
    text = findings(run(tmp_path, two(ranks=(2, 4))))["different runs"]
    assert "runs of different size: number of ranks 2: 1 report" in text


def test_reports_that_do_not_touch_in_time_are_told(tmp_path: Path) -> None:
    reports = two(utc_ns=(START, START + 3600 * 10**9))
    text = findings(run(tmp_path, reports, TranslateOptions(unrelated=True)))["different runs"]
    assert "2 separate periods of time: 1 report from 2023-11-14 22:13:20 to 2023-11-14 22:13:20" in text
    assert "1 report from 2023-11-14 23:13:20" in text


def test_clocks_that_are_seconds_apart_are_no_other_run(tmp_path: Path) -> None:
    assert findings(run(tmp_path, two(utc_ns=(START, START + 10 * 10**9)))) == {}


MINUTE = 60 * 10**9
ENDED = "that one ended at 2023-11-14 22:13:20 UTC, this one started"


@pytest.mark.parametrize(
    ("differing", "what"),
    [
        ({"environment": ({"SLURM_JOB_ID": "1"}, {"SLURM_JOB_ID": "2"})}, "SLURM job 2, not 1"),
        ({"environment": tuple({"SLURM_JOB_ID": job, "TORCHELASTIC_RUN_ID": "x"} for job in "12")}, "SLURM job 2, not 1"),
        ({"utc_ns": (START, START + 4 * MINUTE)}, f"{ENDED} 4.0 minutes later"),
        (
            # One run after the other on a host, where a user numbers all runs alike.
            {
                "utc_ns": (START, START + 400 * 24 * 60 * MINUTE), "host": ("n0", "n0"), "pid": (7, 8),
                "environment": ({"TORCHELASTIC_RUN_ID": "x"},) * 2,
            },
            f"{ENDED} 400.0 days later",
        ),
        # Long enough for the id to be that of another process.
        ({"utc_ns": (START, START + 120 * MINUTE), "host": "nn", "rank": (0, 0), "ranks": (1, 1)}, f"{ENDED} 2.0 hours later"),
        (
            # Two runs in one job: a rank lives once.
            {
                "utc_ns": (START, START + MINUTE // 2), "host": ("n0", "n0"), "rank": (0, 0), "ranks": (1, 1), "pid": (7, 8),
                "environment": ({"SLURM_JOB_ID": "1"},) * 2,
            },
            f"{ENDED} 30.0 s later, and rank 0 of n0 is another process in it",
        ),
        (
            # A program that was started twice.
            {"utc_ns": (START, START + 3 * 10**9), "host": ["n0"] * 2, "rank": [None] * 2, "ranks": [None] * 2, "pid": (7, 8)},
            f"{ENDED} 3.0 s later, and python3 of n0 is another process in it",
        ),
    ],
)  # fmt: skip
def test_reports_of_different_runs_are_refused(
    command_line: CommandLine, tmp_path: Path, differing: dict[str, tuple[object, object]], what: str
) -> None:
    paths = [with_call(report).write(tmp_path / path) for path, report in two(**differing).items()]
    refused = command_line.run("translate", *paths, "-o", tmp_path / "trace", "--keep-going")
    assert (refused.returncode, refused.stdout) == (BAD_REPORT, "")
    sentence = f"{paths[1]}: not of the same run as {paths[0]} ({what}); give the reports of one run, or all with --unrelated"
    assert refused.stderr == f"nsys2prv: {sentence}\n"
    assert not list(tmp_path.glob("trace*"))
    with pytest.raises(UnrelatedReports, match="not of the same run"):
        _ = open_run(paths).ranks
    assert open_run(paths, unrelated=True).ranks.height == 2


@pytest.mark.parametrize(
    "differing",
    [
        {"utc_ns": (START, START + 50 * 10**9)},
        {"utc_ns": (START, None)},
        # Parts of a job, recorded one after the other.
        {"utc_ns": (START, START + 300 * MINUTE), "environment": ({"SLURM_JOB_ID": "1"}, {"SLURM_JOB_ID": "1"})},
        # Several launches inside of one job.
        {
            "utc_ns": (START, START + 30 * MINUTE),
            "environment": tuple({"SLURM_JOB_ID": "1", "TORCHELASTIC_RUN_ID": name} for name in "ab"),
        },
        # Ranges of one process, each in a report.
        {"utc_ns": (START, START + 30 * MINUTE), "host": ("n0", "n0"), "rank": (0, 0), "ranks": (1, 1)},
        {"environment": ({"SLURM_JOB_ID": "1"}, {})},
    ],
)
def test_reports_that_may_be_of_one_run_are_taken_together(tmp_path: Path, differing: dict[str, tuple[object, object]]) -> None:
    assert len(run(tmp_path, two(**differing)).content["reports"]) == 2


def test_a_report_between_two_others_joins_them(tmp_path: Path) -> None:
    reports = {f"{index}.sqlite": ReportBuilder(host=f"n{index}", utc_ns=START + index * MINUTE) for index in range(3)}
    reports["1.sqlite"].os_call("sleep", 1000, 90 * 10**9)
    assert len(run(tmp_path, reports).content["reports"]) == 3


def test_mixed_versions_are_told(tmp_path: Path) -> None:
    reports = two()
    reports["1.sqlite"].without("META_DATA_EXPORT")
    text = findings(run(tmp_path, reports))["mixed versions"]
    assert "nsys 2024.2.3.38: 1 report" in text
    assert "nsys unknown: 1 report" in text


def test_strict_makes_errors_of_all_that_is_not_one_complete_run(command_line: CommandLine, tmp_path: Path) -> None:
    cases = {
        "duplicate": two(rank=(0, 0), ranks=(1, 1)),
        "missing": two(ranks=(4, 4)),
        "jobs": two(environment=({"SLURM_JOB_ID": "1"}, {"SLURM_JOB_ID": "2"})),
        "time": two(utc_ns=(START, START + 3600 * 10**9)),
        "fine": two(),
    }
    for name, reports in cases.items():
        (tmp_path / name).mkdir()
        paths = [with_call(report).write(tmp_path / name / path) for path, report in reports.items()]
        strict = command_line.run("translate", *paths, "-o", tmp_path / name / "strict", "--strict", "--align", "utc")
        lax = command_line.run("translate", *paths, "-o", tmp_path / name / "lax", "--align", "utc", "--unrelated")
        if name == "fine":
            assert (strict.returncode, strict.stderr, lax.stderr) == (DONE, "", "")
            continue
        sentence(strict, INCONSISTENT, "nsys2prv: the reports are not one complete run: ")
        assert not list((tmp_path / name).glob("strict*"))
        assert lax.returncode == DONE
        assert lax.stderr.startswith("warning: ")
        told = json.loads((tmp_path / name / "lax.json").read_text())["run"]["findings"]
        assert [finding["is_error_with_strict"] for finding in told] == [True]
        assert told[0]["text"].replace(f"{tmp_path / name}/", "") in lax.stderr
        assert told[0]["text"] in strict.stderr


def test_strict_is_not_about_conclusions(tmp_path: Path) -> None:
    reports = {f"rank{rank}.sqlite": ReportBuilder(pid=10 + rank, host="") for rank in (0, 1)}
    found = run(tmp_path, reports, TranslateOptions(strict=True))
    assert set(findings(found)) == {"ranks by name", "unknown hosts"}
    with pytest.raises(InconsistentRun):
        run(tmp_path, two(rank=(0, 0)), TranslateOptions(strict=True), "other")


def gpus(report: ReportBuilder, *uuids: str) -> ReportBuilder:
    for index, uuid in enumerate(uuids):
        report.gpu(index, uuid=uuid)
    return report


def cpus(count: int, **arguments: object) -> ReportBuilder:
    report = ReportBuilder(host="localhost", **arguments)  # type: ignore[arg-type]
    for row in report._rows["TARGET_INFO_SYSTEM_ENV"]:
        if row["name"] == "CpuCores":
            row["value"] = str(count)
    return report


HOUR = 3600 * 10**9


def each(*arguments: dict[str, object], **shared: object) -> list[ReportBuilder]:
    """A report for each of some arguments; ids of their processes differ unless they are given."""
    return [ReportBuilder(**{"pid": 10 + index, **shared, **one}) for index, one in enumerate(arguments)]  # type: ignore[arg-type]


def numbered(variable: str, *numbers: int, **environment: str) -> list[dict[str, object]]:
    return [{"environment": {**environment, variable: str(number)}} for number in numbers]


ONE_AFTER_THE_OTHER = [{"utc_ns": START + index} for index in (0, 1)]
LATER = [{"utc_ns": START + index * 10**6} for index in (0, 1)]
OF_TORCHRUN = [{"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank % 2)} for rank in (3, 2, 1, 0)]
MODELS = ("NVIDIA A100", "NVIDIA H100")


@pytest.mark.parametrize(
    ("reports", "expected", "said"),
    [
        # Containers on machines that booted at different times; and a UTC that was stepped a little.
        (
            each(*({"monotonic_ns": boot} for boot in (10 * HOUR, 10 * HOUR + 10**6, 500 * HOUR)), host="box"),
            ["box (1)", "box (1)", "box (2)"],
            "are of 2 hosts (they booted at different times)",
        ),
        (each({"monotonic_ns": HOUR}, {"monotonic_ns": HOUR + 10**9}), ["node01", "node01"], ""),
        # GPUs at the same place: different ones, one that is shared whatever else differs, its parts, other models.
        (
            [gpus(report, f"uuid-{index}0", f"uuid-{index}1") for index, report in enumerate(each({}, {}, host=""))],
            ["host (1)", "host (2)"],
            "have no host name",
        ),
        ([gpus(cpus(count, pid=count), "uuid-0") for count in (8, 16)], ["localhost", "localhost"], ""),
        ([gpus(report, f"MIG-{index}") for index, report in enumerate(each({}, {}))], ["node01", "node01"], ""),
        (
            [
                report.without("TARGET_INFO_GPU", "uuid").gpu(0, name=name)
                for report, name in zip(each({}, {}, host="box"), MODELS, strict=True)
            ],
            ["box (1)", "box (2)"],
            "different GPUs at the same place",
        ),
        # Processes of one id: at one time, unless containers share a GPU or booted together; later it is the same process.
        (
            each(*ONE_AFTER_THE_OTHER, host="box", pid=7),
            ["box (1)", "box (2)"],
            "are of 2 hosts (they have different processes of the same id)",
        ),
        (each({}, {}, host="", utc_ns=None, pid=7), ["host (1)", "host (2)"], ""),
        ([gpus(report, "uuid-0") for report in each(*ONE_AFTER_THE_OTHER, pid=7)], ["node01", "node01"], ""),
        (each(*ONE_AFTER_THE_OTHER, pid=7, monotonic_ns=HOUR), ["node01", "node01"], ""),
        (each(*LATER, host="box", pid=7), ["box", "box"], ""),
        (each(*({**one, "rank": rank} for rank, one in enumerate(LATER)), host="box", pid=7), ["box (1)", "box (2)"], ""),
        # What the launcher numbers: hosts are numbered by rank, whatever the order of files; steps number nodes anew.
        (
            each(
                *({"rank": rank, **one} for rank, one in enumerate(numbered("SLURM_NODEID", 0, 0, 1, 1))), host="box", ranks=4
            ),
            ["box (1)", "box (1)", "box (2)", "box (2)"],
            "",
        ),
        (each(*({"environment": one} for one in OF_TORCHRUN), host="box"), ["box (2)", "box (2)", "box (1)", "box (1)"], ""),
        (
            each(*({"environment": {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": step, "SLURM_NODEID": step}} for step in "01")),
            ["node01", "node01"],
            "",
        ),
    ],
)
def test_hosts_are_told_apart_by_what_can_not_be_of_one(
    tmp_path: Path, reports: list[ReportBuilder], expected: list[str], said: str
) -> None:
    found = run(tmp_path, {f"{index}.sqlite": report for index, report in enumerate(reports)})
    assert hosts(found) == expected
    assert {node["name"] for node in found.content["nodes"]} == set(expected)
    assert said in findings(found).get("hosts of one name", "")


def test_a_process_that_is_only_seen_by_another_report_is_no_contradiction(tmp_path: Path) -> None:
    reports = {f"{index}.sqlite": ReportBuilder(pid=10 + index, utc_ns=START + index) for index in (0, 1)}
    # Scheduling is recorded for all processes of a program.
    for index, report in enumerate(reports.values()):
        other = 11 - index
        report.process(other)
        report.thread(other, pid=other)
        report.on_cpu(5, 50, cpu=index, tid=other, pid=other)
    assert hosts(run(tmp_path, reports)) == ["node01", "node01"]


def test_different_numbers_of_cpus_tell_hosts_apart_unless_they_booted_together(tmp_path: Path) -> None:
    reports = {f"{count}.sqlite": cpus(count, pid=count) for count in (8, 16)}
    found = run(tmp_path, reports)
    assert [node["cpus"] for node in found.content["nodes"]] == [8, 16]
    reports = {f"{count}.sqlite": cpus(count, pid=count, monotonic_ns=HOUR) for count in (8, 16)}
    assert len(run(tmp_path, reports, name="other").content["nodes"]) == 1


def test_the_launcher_names_a_host_that_nsys_does_not(tmp_path: Path) -> None:
    report = ReportBuilder(host="", environment={"SLURMD_NODENAME": "nid007", "HOSTNAME": "login01"})
    found = run(tmp_path, {"a.sqlite": report})
    assert hosts(found) == ["nid007"]
    assert found.content["reports"][0]["host_source"] == "SLURMD_NODENAME"


def test_reports_that_name_no_host_and_show_no_difference_are_one_host_and_it_is_said(tmp_path: Path) -> None:
    reports = {f"{index}.sqlite": ReportBuilder(host="", pid=10 + index) for index in (0, 1)}
    found = run(tmp_path, reports)
    assert len(found.content["nodes"]) == 1
    assert "2 reports have no host name and are treated as reports of one" in findings(found)["unknown hosts"]


@pytest.mark.parametrize("pattern", [r"/(nid\d+)/", "nid1,nid12", *rest(" nid12 , nid1")])
def test_hosts_are_taken_from_paths(tmp_path: Path, pattern: str) -> None:
    reports = {f"{host}/r{index}.sqlite": ReportBuilder(host="same", pid=10 + index, monotonic_ns=HOUR * index)
               for index, host in enumerate(("nid1", "nid12", "nid1"))}  # fmt: skip
    found = run(tmp_path, reports, TranslateOptions(host_pattern=pattern))
    assert sorted(hosts(found)) == ["nid1", "nid1", "nid12"]
    assert {report["host_source"] for report in found.content["reports"]} == {"--host-pattern"}
    assert findings(found) == {}


@pytest.mark.parametrize(
    "others",
    [
        # As CUDA names slices, and as older drivers do; one report has the GPU itself.
        pytest.param(("MIG-11111111-aaaa", "MIG-22222222-bbbb", "0123-gpu"), marks=pytest.mark.thorough),
        ("MIG-GPU-0123-gpu/1/0", "MIG-GPU-0123-gpu/2/0", "GPU-0123-gpu"),
    ],
)
def test_slices_of_a_gpu_are_one_device(tmp_path: Path, others: tuple[str, ...]) -> None:
    reports = []
    for index, uuid in enumerate(others):
        report = ReportBuilder(pid=10 + index, rank=index, ranks=3, utc_ns=START + index)
        report.gpu(0, uuid=uuid, bus="0000:1A:00.0").gpu(1, uuid="another", bus="0000:2A:00.0")
        if index == 1:
            report.cuda_device(0, 0, uuid=uuid)
        report.kernel("k", 100 * index, 100 * index + 50)
        reports.append(report.write(tmp_path / f"{index}.sqlite"))
    assert measure(reports, EfficiencyOptions()).tables["devices"]["device"].to_list() == ["node01:D0"]


# -- broken reports among good ones ---------------------------------------------------------------------------------------


def good(rank: int) -> ReportBuilder:
    report = ReportBuilder(rank=rank, ranks=3, pid=10 + rank, host=f"n{rank}")
    for index in range(50):
        report.kernel("gemm", 100 * index + 30, 100 * index + 90, launch=(100 * index, 100 * index + 10))
    return report


def missing(folder: Path) -> Path:
    return folder / "missing.sqlite"


def text_file(folder: Path) -> Path:
    path = folder / "notes.sqlite"
    path.write_text("These are notes.\n" * 100)
    return path


def without_clock_column(folder: Path) -> Path:
    """Breaks when it is described."""
    path = good(2).write(folder / "rank2_pqtdir")
    (path / "TARGET_INFO_SESSION_START_TIME.parquet").write_bytes(b"PAR1 and nothing else")
    return path


def without_needed_column(folder: Path) -> Path:
    """Breaks when it is surveyed."""
    return good(2).without("CUPTI_ACTIVITY_KIND_KERNEL", "end").write(folder / "rank2.sqlite")


def text_among_numbers(folder: Path) -> Path:
    """Breaks when it is translated, after many events: the survey does not look at sizes of grids."""
    report = good(2)
    for index in range(20_000):
        report.kernel("late", 10_000 + 10 * index, 10_005 + 10 * index)
    path = report.write(folder / "rank2.sqlite")
    with sqlite3.connect(path) as database:
        database.execute("update CUPTI_ACTIVITY_KIND_KERNEL set gridX = 'many' where start > 190000 and start < 190100")
    database.close()
    return path


BROKEN: dict[Callable[[Path], Path], str] = {
    missing: "there is no such file",
    without_clock_column: "damaged or incomplete",
    without_needed_column: "has no column end",
    text_among_numbers: "damaged or incomplete",
}


@pytest.mark.parametrize("make", few_of(BROKEN, {missing}), ids=lambda make: make.__name__)
def test_a_broken_report_is_named_and_left_out_and_the_exit_code_tells(
    make: Callable[[Path], Path], command_line: CommandLine, tmp_path: Path
) -> None:
    whole = [good(rank).write(tmp_path / f"rank{rank}.sqlite") for rank in (0, 1)]
    (tmp_path / "bad").mkdir()
    broken = make(tmp_path / "bad")
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()

    refused = command_line.run("translate", *whole, broken, "-o", tmp_path / "one" / "trace")
    done = command_line.run("translate", *whole, broken, "-o", tmp_path / "two" / "trace", "--keep-going")
    without = command_line.run("translate", *whole, "-o", tmp_path / "three" / "trace")

    assert refused.returncode == BAD_REPORT
    assert not list((tmp_path / "one").iterdir())
    assert done.returncode == LEFT_OUT
    assert without.returncode == DONE
    assert any(f"warning: left out: {name}" in done.stderr for name in (broken, broken.name))
    assert BROKEN[make] in done.stderr
    assert "rank 2 of 3 is not among the reports" in done.stderr
    content = json.loads((tmp_path / "two" / "trace.json").read_text())
    assert [(Path(one["path"]), BROKEN[make] in one["error"]) for one in content["left_out"]] == [(broken, True)]
    assert len(content["reports"]) == 2
    # Nothing of it is in the trace.
    for suffix in (".prv", ".pcf", ".row"):
        assert (tmp_path / "two" / f"trace{suffix}").read_bytes() == (tmp_path / "three" / f"trace{suffix}").read_bytes()
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == [
        f"trace{end}" for end in (".cfgs", ".json", ".pcf", ".prv", ".row")
    ]


def test_several_broken_reports_are_all_named(command_line: CommandLine, tmp_path: Path) -> None:
    whole = good(0).write(tmp_path / "rank0.sqlite")
    folder = tmp_path / "bad"
    folder.mkdir()
    broken = [text_file(folder), without_needed_column(folder), missing(folder), folder / "none*.sqlite"]
    done = command_line.run("translate", whole, whole, *broken, "-o", tmp_path / "trace", "--keep-going")
    assert done.returncode == LEFT_OUT
    for path in (*broken, whole):
        assert any(f"warning: left out: {name}: " in done.stderr for name in (path, path.name))


def test_when_all_reports_are_broken_there_is_nothing_to_go_on_with(command_line: CommandLine, tmp_path: Path) -> None:
    broken = [text_file(tmp_path), missing(tmp_path)]
    sentence(command_line.run("translate", *broken, "-o", tmp_path / "trace", "--keep-going"), BAD_REPORT)


def test_an_error_is_raised_without_keep_going_or_where_it_is_about_no_report() -> None:
    error = DamagedReport(Path("a.sqlite"), "cut off")
    with pytest.raises(DamagedReport):
        BrokenReports(keep_going=False).leave_out(error.path, error)
    with pytest.raises(DamagedReport):
        BrokenReports(keep_going=True).without([], error)


# -- limits ---------------------------------------------------------------------------------------------------------------


def many_streams(streams: int = 40) -> ReportBuilder:
    """Kernels and copies that overlap on many streams of two contexts."""
    report = ReportBuilder()
    report.gpu(0)
    for index in range(400):
        stream, context = 7 + index % streams, 1 + index % 2
        # Three kernels at any time.
        report.kernel(f"k{index % 3}", 100 * index, 100 * index + 250, stream=stream, context=context,
                      launch=(100 * index - 60, 100 * index - 50))  # fmt: skip
        report.copy(100 * index + 10, 100 * index + 60, 8, stream=stream, context=context)
    return report


def test_folded_streams_are_a_few_rows_with_the_same_events(tmp_path: Path) -> None:
    report = many_streams().write(tmp_path / "r.sqlite")
    plain = translate([report], tmp_path / "plain")
    folded = checked(translate([report], tmp_path / "folded", TranslateOptions(fold_streams=True)))
    names = [name for task in folded.content["tasks"] for name in task["threads"] if name.startswith("CUDA")]
    assert names == ["CUDA-D0.S0-node01"] * 3
    assert plain.content["trace"]["rows"] > 40
    what = ("begin", "end", "type", "value")
    traces = [open_whole(summary.prv) for summary in (plain, folded)]
    events = [trace.intervals().select(what).sort(what).rows() for trace in traces]
    assert len(events[0]) == 1200
    assert events[0] == events[1]
    assert traces[0].messages().height == traces[1].messages().height == 400
    # A row is running while a kernel is on it: all together as long as the kernels last.
    running = traces[1].states().filter((pl.col("state") == 1) & (pl.col("thread") > 1))
    assert (running["end"] - running["begin"]).sum() == 400 * 250


def test_above_the_limit_streams_can_be_folded_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = many_streams().write(tmp_path / "r.sqlite")
    monkeypatch.setattr(trace_format, "MOST_OBJECTS", 20)
    with pytest.raises(TooManyRows, match=r"select ranks with --ranks, merge the 40 streams .* --fold-streams"):
        translate([report], tmp_path / "plain")
    assert translate([report], tmp_path / "folded", TranslateOptions(fold_streams=True)).content["trace"]["rows"] == 4
    monkeypatch.setattr(trace_format, "MOST_OBJECTS", 3)
    with pytest.raises(TooManyRows, match="--ranks") as raised:
        translate([report], tmp_path / "again", TranslateOptions(fold_streams=True))
    assert "--fold-streams" not in str(raised.value)


def test_more_cpus_than_paraver_takes_are_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_format, "MOST_OBJECTS", 100)
    reports = {f"{rank}.sqlite": ReportBuilder(host=f"n{rank}", rank=rank, ranks=2, pid=9) for rank in (0, 1)}
    found = run(tmp_path, reports)
    assert [node["cpus"] for node in found.content["nodes"]] == [1, 1]


def test_texts_of_few_reports_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = [open_report(good(rank).write(tmp_path / f"{rank}.sqlite")) for rank in range(3)]
    held = Lookups(most=int(2.5 * reports[0].strings.estimated_size()))
    monkeypatch.setattr("nsys2prv.exports.report.LOOKUPS", held)
    read = [report.strings for report in reports]
    assert len(held._held) == 2
    # Used again though not held any longer; the one used last is held.
    assert reports[0].strings.equals(read[0])
    assert reports[0].strings is reports[0].folded.strings
    del reports, read
    gc.collect()
    assert len(held._held) == 0
