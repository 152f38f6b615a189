"""The strict parser reads a view as Paraver does, and refuses what Paraver would drop."""

from __future__ import annotations

import pytest
from support.view_contents import ONE_GPU, TYPES, content
from support.view_parser import MalformedCfg, parse_cfg

from nsys2prv.paraver.views.render import ViewRenderer

TABLE_VIEW = "3-communication/overlap_of_communication"


@pytest.fixture(scope="module")
def table_view(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("view")
    ViewRenderer(content(TYPES, [*ONE_GPU, (1, ["other"])])).render(folder, [TABLE_VIEW])
    return (folder / f"{TABLE_VIEW}.cfg").read_text()


def test_the_parser_reads_windows_and_table(table_view: str) -> None:
    cfg = parse_cfg(table_view, "view")

    assert [(window.name, window.is_derived, window.parents) for window in cfg.windows] == [
        ("concurrent kernels", False, ()),
        ("in NCCL kernel", False, ()),
        ("concurrent kernels during communication", True, (1, 2)),
    ]
    assert cfg.kind == "table"
    assert cfg.histogram["Analyzer2D.Statistic:"] == "% Time"
    assert cfg.description.endswith("add up to 100 %.")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ConfigFile.NumWindows: 3", "ConfigFile.NumWindows: 2"),
        ("ConfigFile.EndDescription", ""),
        ("window_type single", "window_type triple"),
        ("window_level task", "window_level device"),
        ("window_units Nanoseconds", "window_units Nanosecond"),
        ("window_units Nanoseconds\n", ""),
        ("window_drawmode draw_maximum", "window_drawmode draw_max"),
        ("window_position_x", "window_position_z"),
        ("window_position_x ", "window_position_x left"),
        ("window_compute_y_max true", "window_compute_y_max True"),
        ("{thread, Last Evt Val}", "{thread, Last Event Value}"),
        ("{task, AddingSign}", "{task, Adding Sign}"),
        ("{compose_thread, Nesting level}", "{compose_thread, Nesting Level}"),
        ("{topcompose1, As Is}", "{topcompose1, Prod}"),
        ("{cpu, Active Thd}, ", ""),
        ("{evt_type, =}", "{evt_type, All}"),
        ("window_operation product", "window_operation multiply"),
        ("window_identifiers 1 2", "window_identifiers 1 4"),
        ("window_identifiers 1 2", "window_identifiers 1 1"),
        ("window_identifiers 1 2\n", ""),
        ("window_factors 1 1", "window_factors 1"),
        ("evt_type 2 63000006 63000007", "evt_type 3 63000006 63000007"),
        ("evt_type 2 63000006 63000007", "evt_type 1 63000006"),
        ('"CUDA kernel"', '"CUDA "kernel"'),
        ("{ 0, 2, { 1, 0 } }", "{ 0, 2, { All, None } }"),
        ("{ 0, 2, { 1, 0 } }", "{ 0, 3, { 1, 0 } }"),
        ("Analyzer2D.ControlWindow: 3", "Analyzer2D.ControlWindow: 4"),
        ("Analyzer2D.DataWindow: 3", "Analyzer2D.DataWindow: 1"),
        ("Analyzer2D.Statistic: % Time", "Analyzer2D.Statistic: Share"),
        ("Analyzer2D.HideCols: True", "Analyzer2D.HideCols: true"),
        ("Analyzer2D.Delta: 1", "Analyzer2D.Delta: one"),
        ("Analyzer2D.Delta: 1", "Analyzer2D.Delta: 1\nAnalyzer2D.Delta: 1"),
        ("Analyzer2D.Name: ", "Analyzer2D.Title: "),
    ],
)
def test_what_paraver_would_drop_or_refuse_is_an_error_that_names_the_view(table_view: str, old: str, new: str) -> None:
    assert old in table_view
    with pytest.raises(MalformedCfg, match=r"^my view, (line \d+|window '.*'): "):
        parse_cfg(table_view.replace(old, new, 1), "my view")


def test_a_data_window_may_be_coarser_than_the_control_window_but_not_finer(table_view: str) -> None:
    finer = table_view.replace("window_level task", "window_level thread", 1).replace(
        "{ 0, 2, { 1, 0 } }", "{ 0, 2, { All, None } }", 1
    )

    with pytest.raises(MalformedCfg):
        parse_cfg(finer.replace("Analyzer2D.DataWindow: 3", "Analyzer2D.DataWindow: 1"), "view")
