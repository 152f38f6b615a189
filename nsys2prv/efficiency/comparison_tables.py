"""All tables of a comparison, and the keys beside them in the JSON."""

from nsys2prv.efficiency.metrics import TREE_COLUMNS_OF_RUN, TREE_TABLE
from nsys2prv.efficiency.result_tables import Column, Table

GPU, PROCESS = "GPU", "process"
"""What runs are measured by: their GPUs, or the processes of hosts where a run uses no GPU."""

_RUN = Column.text("run", "`A`, `B`, ... in the order given")
RUNS = Table(
    "runs",
    "The runs",
    "one run",
    (
        _RUN,
        Column.text("label", "what it is called: as given with `--label`, else what differs in the paths"),
        Column.text("title", "name of what was measured"),
        *TREE_COLUMNS_OF_RUN,
        Column.text("per", "`GPU`; `process` where a run uses no GPU: n and U of the columns below are of these"),
        Column.count("size", "n"),
        Column.ns("idle_ns", "sum over devices of E - A: time in which they neither compute nor move data"),
        Column.count("iterations", "iterations without warm-up; null where none were found"),
        Column.mean_ns("iteration_ns", "their mean length: from the first start to the last one over devices; null likewise"),
        Column.text("basis", "`run`; `iteration` where their numbers differ: times of the columns below are those of one then"),
        Column.text("scaling", "`strong` (all runs do the same work) or `weak` (each device does), against the first run"),
        Column.number("speedup", "E of the first run / E"),
        Column.number(
            "scaling_efficiency",
            "speedup / the speedup that the scaling allows: n of this run / n of the first (strong), 1 (weak); null, as all "
            "below, where useful times can't be compared: of a run with GPUs and one without, of hosts without MPI, and of "
            "runs on other numbers of GPUs of which ranks are missing",
        ),
        Column.number("useful_scalability", "sum U of the first run / sum U: 1 when equal work takes equal time (strong)"),
        Column.number("useful_scalability_per_device", "mean U of the first run / mean U (weak scaling)"),
        Column.number("scalability", "that of the two that belongs to the scaling"),
        Column.number("global_efficiency", "device (of processes: host) parallel efficiency x useful scalability"),
        Column.number("global_efficiency_per_device", "the same x useful scalability per device"),
    ),
)
METRICS = Table(
    "metrics",
    "Efficiencies side by side",
    "one efficiency of one run",
    (
        _RUN,
        *(column for column in TREE_TABLE.columns if column.name not in ("formula", "reads_as")),
        Column.number("change", "difference to the first run"),
    ),
)
MATCHED = Table(
    "matched",
    "Kernels and families side by side",
    "one kernel or family of one run",
    (
        Column.text("level", "`kernel` or `family`"),
        Column.text("name", "its name"),
        Column.text("family", "family of a kernel"),
        _RUN,
        Column.count("runs", "runs that have it"),
        Column.count("count", "executions"),
        Column.ns("total_ns", "sum of durations"),
        Column.mean_ns("mean_ns", "mean duration"),
        Column.share("share", "of the sum of durations of all kernels of the run"),
        Column.number("mean_ratio", "mean duration / that of the first run; null where one of them has none"),
        Column.number(
            "scalability",
            "sum of durations in the first run / sum here, of an iteration and of a device where basis and scaling of the "
            "run say so; null where one of them has none",
        ),
    ),
)
CHANGES = Table(
    "changes",
    "What changed most",
    "one item that takes time, in one run against the first",
    (
        _RUN,
        Column.text("what", "`devices`, `family`, `kernel`, `gaps`, `memory`, `CUDA call`, `MPI call`; without GPUs `OS call`"),
        Column.text("name", "its name; of gaps: what the launching thread did"),
        Column.mean_ns(
            "before_ns",
            "time in the first run, per device (of calls: per host thread; of calls of the OS: per process); / its iterations "
            "where `basis` says so",
        ),
        Column.mean_ns("after_ns", "time in this run, likewise"),
        Column.mean_ns("difference_ns", "after - before"),
        Column.number("ratio", "after / before; null for what the first run does not have"),
    ),
)

WALL_TIME = Table(
    "wall_time",
    "Wall time by cause, side by side",
    "one part of the wall time of one run; parts that no run has are absent",
    (
        _RUN,
        Column.text("part", "`compute`, or a cause of compute-absent time"),
        Column.text("title", "for people"),
        Column.text("group", "`compute`, or a group of causes"),
        Column.mean_ns("value_ns", "mean over devices (without GPUs: over host threads); of an iteration as `basis` says"),
        Column.share("share", "of the wall time"),
        Column.mean_ns("difference_ns", "to the first run"),
    ),
)
ITERATION_LENGTHS = Table(
    "iteration_lengths",
    "Iterations of the runs",
    "one iteration of one run",
    (
        _RUN,
        Column.count("iteration", "0, 1, ..."),
        Column.ns("length_ns", "on the device on which it takes longest"),
        Column.text("kind", "as in `iterations` of `efficiency`; null for a usual one"),
    ),
    when="runs in which iterations were found",
)

FAILS, PASSES, NOT_DECIDABLE = "fails", "passes", "not decidable"
"""Results of a condition."""

GATE = Table(
    "gate",
    "Gate",
    "one condition of `--fail-if`, of one run",
    (
        Column.text("condition", "as it was given; the gate fails where it is true"),
        Column.text("run", "the run that is checked: `A`, `B`, ..."),
        Column.text("metric", "name of the column of `runs`"),
        Column.text("unit", "unit of the numbers: `ns`, `0 to 1`, or none"),
        Column.number("value", "of that run; null where it has none"),
        Column.number("least", "the least that it can be, as clocks are known; null likewise"),
        Column.number("most", "the most that it can be; null likewise"),
        Column.number("bound", "what it is compared with; null where the other run has no such value"),
        Column.number("least_bound", "the least that the bound can be; null likewise"),
        Column.number("most_bound", "the most that the bound can be; null likewise"),
        Column.text("result", f"`{FAILS}` (the condition is true), `{PASSES}` or `{NOT_DECIDABLE}`"),
        Column.text("reason", "why it is not decidable; null otherwise"),
    ),
    when="`--fail-if`",
)

TABLES = (RUNS, METRICS, WALL_TIME, CHANGES, MATCHED, ITERATION_LENGTHS, GATE)
"""All tables of a comparison."""

FORMAT = "nsys2prv-comparison"
VERSION = 2
HEAD: tuple[tuple[str, str, str], ...] = (
    ("format", "text", f"`{FORMAT}`"),
    ("version", "number", f"of this format: {VERSION}"),
    ("nsys2prv", "text", "version of the program"),
    ("runs", "list of objects", "`run` (`A`, `B`, ...), `label`, `input`, `title`"),
    ("nccl", "text", "`communication` or `useful`: what NCCL kernels count as"),
    ("not_compared", "text", "what can't be compared, of a run with GPUs and one without; null otherwise"),
    ("warnings", "list of texts", "what is odd, of all runs"),
    ("tables", "object", "as above"),
)
"""Keys of the JSON: key, type, meaning."""
