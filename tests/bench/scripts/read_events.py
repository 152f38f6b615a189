"""How long `efficiency` only reads the events of a trace, without measuring anything, as JSON: `read_events.py TRACE`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from nsys2prv.cli.main import prepare_libraries

prepare_libraries()

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions  # noqa: E402
from nsys2prv.efficiency.event_input import read_events  # noqa: E402
from nsys2prv.execution import memory  # noqa: E402

# As the command has it: where memory is ample, pieces are larger.
own, _ = memory.allotments(None, 0)
with tempfile.TemporaryDirectory() as folder, memory.limited(own):
    began = time.perf_counter()
    read_events([sys.argv[1]], EfficiencyOptions(progress=False), Path(folder), with_dependencies=True)
    print(json.dumps({"seconds": time.perf_counter() - began}))
