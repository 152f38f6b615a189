"""Traces, and what is read beside them, that are small and would take memory or time without end, or are no files."""

import errno
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from faults.fuzz.damaged_results import results
from support.command_line import CommandLine
from support.failed_runs import sentence, small_report

from nsys2prv.efficiency.results import read_efficiency
from nsys2prv.errors import NotEfficiency
from nsys2prv.vocabulary.limits import read_ordinary

BAD_OPTION, BAD_REPORT, BAD_TRACE, NOT_EFFICIENCY = 2, 3, 8, 13
HEADER = "#Paraver (21/11/2025 at 06:36):1000_ns:1(4):1:1(1:1)\n"


@pytest.mark.parametrize(
    ("start", "why"),
    [("#Paraver (21/11/2025 at 06:36):1", "line 1: it has more than"), (f"{HEADER}2:0:1:1:1:0:1", "line 2: it has more than")],
)
@pytest.mark.parametrize("command", ["check", "views"])
def test_a_line_without_end_is_refused(command: str, start: str, why: str, command_line: CommandLine) -> None:
    (command_line.folder / "OUT.prv.gz").write_bytes(gzip.compress(start.encode() + b"1" * (17 << 20), 1))
    done = command_line.run(command, "OUT.prv.gz")
    if command == "check" and start.startswith(HEADER):
        assert (done.returncode, why in done.stdout) == (1, True)
    else:
        sentence(done, BAD_TRACE, "OUT.prv.gz", why)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("1000_ns:1(4):1:1(1000000000:1)", "1000000000 rows, and Paraver takes 65535"),
        (f"1000_ns:1(4):1:1(1{'0' * 30}:1)", "has too many digits"),
        (f"{'9' * 5000}_ns:1(4):1:1(1:1)", "has too many digits"),
        (f"{'9' * 19}_ns:1(4):1:1(1:1)", "does not fit in 64 bits"),
        ("1000_ns:1(4):1:1(1:1),1000000000", "1000000000 communicators"),
    ],
)
@pytest.mark.parametrize("command", ["check", "views"])
def test_a_header_of_huge_numbers_is_refused(command: str, header: str, why: str, command_line: CommandLine) -> None:
    (command_line.folder / "OUT.prv").write_text(f"#Paraver (21/11/2025 at 06:36):{header}\n")
    done = command_line.run(command, "OUT.prv")
    assert why in done.stdout + done.stderr
    assert done.returncode == (1 if command == "check" else BAD_TRACE)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (f"{HEADER[:-1]},1\nc:1:1:{'9' * 5000}:1\n2:0:1:1:1:0:1:1\n", "is not a communicator"),
        *(
            (f"{HEADER}2:0:1:1:1:0:63000006:5\n2:0:1:{place}:5:63000006:0\n", "is not in the header")
            for place in ("2:1", "0:1", "1:2", "1:0", "999999999999:1")
        ),
    ],
    ids=lambda part: part[-24:].strip(),
)
def test_what_the_header_does_not_allow_is_not_valid(content: str, why: str, command_line: CommandLine) -> None:
    (command_line.folder / "OUT.prv").write_text(content)
    done = command_line.run("check", "OUT.prv")
    assert done.returncode == 1
    assert why in done.stdout


@pytest.mark.parametrize("number", [2**32, 90040001234567, 2**63 - 1])
def test_views_leave_types_out_that_paraver_does_not_keep(number: int, command_line: CommandLine) -> None:
    (command_line.folder / "OUT.prv").write_text(f"{HEADER}2:0:1:1:1:0:{number}:5:63000006:5\n2:0:1:1:1:5:63000006:0\n")
    done = command_line.run("views", "OUT.prv")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("suffix", [".prv", ".pcf", ".row", ".json"])
@pytest.mark.parametrize("command", ["check", "views"])
def test_a_named_pipe_in_the_place_of_a_file_is_no_file(command: str, suffix: str, command_line: CommandLine) -> None:
    (command_line.folder / "OUT.prv").write_text(f"{HEADER}2:0:1:1:1:0:63000006:5:63000006:0\n")
    (command_line.folder / f"OUT{suffix}").unlink(missing_ok=True)
    os.mkfifo(command_line.folder / f"OUT{suffix}")
    done = command_line.run(command, "OUT.prv")
    sentence(done, BAD_TRACE, f"OUT{suffix}", "it is a named pipe")


@pytest.mark.parametrize("suffix", [".prv", ".pcf", ".row", ".json"])
@pytest.mark.parametrize("command", ["check", "views"])
@pytest.mark.parametrize("call", ["stat", "open"])
def test_a_file_that_the_disk_does_not_give_is_no_fault_of_the_trace(
    call: str, command: str, suffix: str, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {".prv": f"{HEADER}2:0:1:1:1:0:63000006:5:63000006:0\n", ".pcf": "", ".row": "", ".json": "{}"}.items():
        (command_line.folder / f"OUT{name}").write_text(text)
    ordinary = getattr(Path, call)

    def failing(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == f"OUT{suffix}":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return ordinary(path, *arguments, **options)

    monkeypatch.setattr(Path, call, failing)

    sentence(command_line.run(command, "OUT.prv"), BAD_TRACE, f"OUT{suffix}: it can't be read (Input/output error)")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("efficiency", "good.sqlite", "--kernel-families", "pipe.csv"), BAD_OPTION),
        (("translate", "good.sqlite", "-o", "OUT", "--labels", "pipe.pcf"), BAD_TRACE),
        (("compare", "good.sqlite", "pipe.json"), NOT_EFFICIENCY),
        (("inspect", "pipe.sqlite"), BAD_REPORT),
        (("inspect", "pipe.nsys-rep"), BAD_REPORT),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_what_is_read_is_no_named_pipe(command: tuple[str, ...], code: int, command_line: CommandLine) -> None:
    small_report().write(command_line.folder / "good.sqlite")
    os.mkfifo(command_line.folder / command[-1])
    sentence(command_line.run(*command), code, command[-1], "it is a named pipe")


def test_a_json_of_endless_nesting_is_no_result(command_line: CommandLine) -> None:
    for name in ("a.json", "b.json"):
        (command_line.folder / name).write_text("[" * 200_000)
    sentence(command_line.run("compare", "a.json", "b.json"), NOT_EFFICIENCY, "a.json", "it is no JSON")


@pytest.mark.parametrize(
    ("table", "column", "value", "why"),
    [
        ("", "nccl", ["useful"], "nccl is no text"),
        ("", "warnings", [1], "warnings is no list of texts"),
        ("run", "elapsed_ns", None, "elapsed_ns of the table run has a null"),
        ("kernels", "mean_ns", 1e308, "mean_ns of the table kernels has a number that is out of range"),
        ("kernels", "share", float("nan"), "share of the table kernels has a number that is out of range"),
        ("families", "family", None, "family of the table families has a null"),
    ],
)
def test_a_result_with_impossible_values_is_refused(table: str, column: str, value: object, why: str, tmp_path: Path) -> None:
    content = json.loads(results())
    if table:
        content["tables"][table][column][0] = value
    else:
        content[column] = value
    (tmp_path / "bad.json").write_text(json.dumps(content))
    with pytest.raises(NotEfficiency, match=rf"bad\.json: .*{why}"):
        read_efficiency(tmp_path / "bad.json")


def test_what_a_shell_gives_for_a_command_is_read(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"what,value,pattern\n")
    os.close(writer)
    try:
        assert read_ordinary(Path(f"/dev/fd/{reader}"), 100) == b"what,value,pattern\n"
    finally:
        os.close(reader)
