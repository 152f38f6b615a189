"""What is given as a Dask scheduler may be anything."""

import gc
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.failed_runs import sentence

from nsys2prv.execution import workers

USAGE = 2
CONTENTS = {
    "empty": b"",
    "cut": b'{"type": "Scheduler", "id": "Scheduler-1", "addr',
    "list": b"[]",
    "number": b"1",
    "null": b"null",
    "no address": b'{"type": "Scheduler"}',
    "null address": b'{"address": null}',
    "number address": b'{"address": 1}',
    "list address": b'{"address": ["tcp://127.0.0.1:1"]}',
    "empty address": b'{"address": ""}',
    "text address": b'{"address": "here"}',
    "two lines": b'{"address": "tcp://a\\nb:1"}',
    "not UTF-8": b'{"address": "\xff"}',
    "zeros": b"\0" * 100,
    "deep": b"[" * 100_000,
    "digits": b'{"address": ' + b"9" * 5000 + b"}",
    "nan": b"NaN",
}


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    """A client that is left behind waits, when it is collected while another one is made, for a lock that this one holds."""
    before = set(threading.enumerate())
    gc.disable()
    try:
        yield
        left = {thread.name for thread in threading.enumerate() if thread not in before}
    finally:
        gc.enable()
    assert "IO loop" not in left


@pytest.mark.parametrize("kind", [*CONTENTS, "folder", "pipe", "nothing"])
def test_a_broken_scheduler_file_is_named(kind: str, command_line: CommandLine, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    file = tmp_path / "scheduler.json"
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind != "nothing":
        file.write_bytes(CONTENTS[kind])
    done = command_line.run("translate", "x.sqlite", "-o", "OUT", "--scheduler", "scheduler.json")
    sentence(done, USAGE, "--scheduler scheduler.json", "dask scheduler --scheduler-file")


def test_a_scheduler_that_accepts_and_is_silent_is_named(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(workers, "_SECONDS_TO_ANSWER", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        done = command_line.run("translate", "x.sqlite", "-o", "OUT", "--scheduler", address)
    sentence(done, USAGE, address, "no Dask scheduler answers there")


def test_tls_without_certificates_is_a_sentence(command_line: CommandLine) -> None:
    pytest.importorskip("distributed")
    done = command_line.run("translate", "x.sqlite", "-o", "OUT", "--scheduler", "tls://127.0.0.1:1")
    sentence(done, USAGE, "tls://127.0.0.1:1", "TLS")


@pytest.mark.parametrize("address", ["nonsense://host:1", "tcp://", "tcp://host:port", "://", ":²"])
def test_an_address_that_is_none_is_named(address: str, command_line: CommandLine) -> None:
    pytest.importorskip("distributed")
    sentence(command_line.run("translate", "x.sqlite", "-o", "OUT", "--scheduler", address), USAGE, address)
