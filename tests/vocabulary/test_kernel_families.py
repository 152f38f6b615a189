"""Families of kernels: what names tell, whose rules count, and where families stand in a trace."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.report_builder import ReportBuilder
from support.traces import labels_of, trace_of

from nsys2prv.errors import UsageError
from nsys2prv.paraver.views.view_table import read_view_table
from nsys2prv.sources.cuda.kernels import NCCL_KERNEL_NAME
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.name_rules import FAMILY, families, read_rules, shipped_rules

_TABLE = Path(__file__).with_name("kernel_names.tsv")
KNOWN = dict(
    reversed(line.split("\t"))
    for line in _TABLE.read_text(encoding="utf-8").splitlines()
    if line != "family\tname" and not line.startswith("#")
)


def test_names_tell_their_families_in_their_order() -> None:
    names = pl.Series([None, *KNOWN, *reversed(KNOWN)])
    found = families(names)
    assert dict(found.select("name", "family").iter_rows()) == KNOWN
    assert found["name"].to_list() == list(KNOWN)


def test_details_and_kind_stand_in_columns_of_their_own() -> None:
    found = families(
        pl.Series(["nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "softmax_warp_backward", "mine", "test_84_gpu"])
    )
    assert found.columns == ["name", "family", "kind", "precision", "layout", "tile", "direction"]
    assert found.drop("name").rows() == [
        ("GEMM bf16 tn 192x192x64", "GEMM", "bf16", "tn", "192x192x64", None),
        ("Softmax backward", "Softmax", None, None, None, "backward"),
        ("mine", None, None, None, None, None),
        ("test", None, None, None, None, None),
    ]


def test_views_of_gemm_and_attention_take_the_kernels_of_these_families() -> None:
    patterns = {name: pattern for name, (_, pattern) in read_view_table().values.items()}
    assert {name for name in KNOWN if patterns["gemm"].search(name)} == {
        name for name, family in KNOWN.items() if family.startswith(("GEMM", "Grouped GEMM"))
    }
    assert {name for name in KNOWN if patterns["flash_attention"].search(name)} == {
        name for name, family in KNOWN.items() if "attention" in family.lower()
    }


def test_no_names_give_no_families() -> None:
    assert families(pl.Series([], dtype=pl.String)).height == 0
    assert families(pl.Series([None], dtype=pl.String)).columns == families(pl.Series(["a"])).columns


@given(st.lists(st.text() | st.text("<>()[]{}*\"',:_& \n\tab0x", max_size=80), max_size=20))
def test_every_name_has_one_family_of_one_line(names: list[str]) -> None:
    names = [name.encode("utf-8", "replace").decode() for name in names]
    found = families(pl.Series(names, dtype=pl.String))
    assert found["name"].to_list() == list(dict.fromkeys(names))
    for family in found["family"]:
        assert family == " ".join(family.split())
        assert 0 < len(family) <= 120


def test_a_name_of_a_megabyte_is_no_trouble() -> None:
    hostile = ["(" * 1_000_000, "a" * 1_000_000, "nccl" * 250_000, "x<" * 500_000, "\n" * 1_000_000, "_128x128" * 100_000]
    found = families(pl.Series(hostile))
    assert found["family"].str.len_chars().max() <= 120  # type: ignore[operator]
    assert found["family"].to_list()[4] == "(unnamed)"


def test_every_kernel_that_is_one_of_nccl_is_so_by_its_family_too() -> None:
    more = {
        "ncclNewKernel_Whatever": True, "ncclDevKernel_AlltoAll_RING": True, "NCCLKernel": True,
        "ncclSymDevKernel_AllGather_LL(ncclSymDevArgs)": True, "void at::native::nccl_like_copy(float*)": False,
        "my_ncclless_kernel(int)": False, "run_ncclAllReduce_check(int)": False,
    }  # fmt: skip
    names = pl.Series([*KNOWN, *more])
    is_nccl = [family.startswith("NCCL ") for family in KNOWN.values()] + list(more.values())
    assert names.str.contains(NCCL_KERNEL_NAME).to_list() == is_nccl
    assert families(names)["family"].str.starts_with("NCCL ").to_list() == is_nccl


def test_the_shipped_rules_keep_to_the_form_that_users_must_keep_to() -> None:
    import nsys2prv.vocabulary.name_rules

    rules = shipped_rules()
    path = Path(nsys2prv.vocabulary.name_rules.__file__).with_name("kernel_families.csv")
    assert read_rules(path) == (*rules, *rules)
    details = {rule.what for rule in rules} - {FAMILY}
    assert {piece for rule in rules for piece in rule.pieces[1::2] if not piece.isdigit()} == details


def test_families_of_nothing_but_own_rules_have_no_details() -> None:
    assert families(pl.Series(["gemm"]), ()).rows() == [("gemm", "gemm", None)]


def own_rules(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["# ours", "what,value,pattern", "", *lines]) + "\n")
    return path


def test_own_rules_come_before_the_shipped_ones(tmp_path: Path) -> None:
    path = own_rules(
        tmp_path,
        "family,Halo exchange,^(?:un)?pack_halo",
        'family,My {precision} {colour} solver {1},"^solve<([a-z]+), "',
        "colour,Red,double",
        "precision,quad,double",
    )
    names = ["pack_halo(int)", "solve<double, 4>()", "solve<float, 4>()", "volta_sgemm_128x64_nn"]
    assert families(pl.Series(names), read_rules(path))["family"].to_list() == [
        "Halo exchange",
        "My quad red solver double",
        "My fp32 solver float",
        "GEMM fp32 nn 128x64",
    ]


def test_a_trace_has_families_on_the_lines_of_kernels(tmp_path: Path) -> None:
    report = ReportBuilder(host="node01")
    report.kernel("volta_sgemm_128x64_nn", 100, 200)
    report.kernel("volta_sgemm_128x64_tn", 200, 300)
    report.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 300, 400)
    report.kernel("void [evil]<\n>::step(int)", 400, 500)
    trace = trace_of(tmp_path, report)
    labels = labels_of(trace, event_types.KERNEL_FAMILY)
    found = trace.intervals([event_types.KERNEL_FAMILY]).sort("begin").select("begin", "end", "value").rows()
    assert [(begin, end, labels[value]) for begin, end, value in found] == [
        (0, 100, "GEMM fp32 nn 128x64"),
        (100, 200, "GEMM fp32 tn 128x64"),
        (200, 300, "NCCL AllReduce"),
        (300, 400, "(evil)< >::step(int)"),
    ]
    kernels = trace.intervals([event_types.KERNEL, event_types.NCCL_KERNEL]).sort("begin").select("begin", "end").rows()
    assert kernels == [(begin, end) for begin, end, _ in found]
    # One view can show kernels and their families: no number means two things.
    named = labels_of(trace, event_types.KERNEL) | labels_of(trace, event_types.NCCL_KERNEL)
    assert {value: name for value, name in labels.items() if value in named} == {
        value: named[value] for value in labels if value in named
    }


def test_own_rules_decide_on_the_families_of_a_trace(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.kernel("ant<1>()", 0, 10)
    report.kernel("zebra<1>()", 10, 20)
    options = TranslateOptions(kernel_families=own_rules(tmp_path, "family,Animal,ant|bee"))
    assert set(labels_of(trace_of(tmp_path, report, options=options), event_types.KERNEL_FAMILY).values()) == {
        "End", "Animal", "zebra",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (["what;value;pattern"], ["line 1", "what,value,pattern"]),
        ([""], ["line 1", "what,value,pattern"]),
        (["what,value,pattern", "family,GEMM"], ["line 2", "2 cells"]),
        (["what,value,pattern", "# note", "family,GEMM,a,b"], ["line 3", "4 cells"]),
        (["what,value,pattern", "Family name,GEMM,a"], ["line 2", "'Family name'"]),
        (["what,value,pattern", "name,GEMM,a"], ["line 2", "'name'"]),
        (["what,value,pattern", "family,,a"], ["line 2", "no value"]),
        (["what,value,pattern", "family,GEMM,(a"], ["line 2", "'(a'", "regular expression"]),
        (["what,value,pattern", "family,GEMM,(?=a)b"], ["line 2", "look-around"]),
        (["what,value,pattern", "family,GEMM {2},(a)"], ["line 2", "{2}", "1 groups"]),
        (["what,value,pattern", 'family,GEMM,"a"b"'], ["line 2", "quotes"]),
    ],
)
def test_a_file_that_is_no_rules_is_one_sentence(tmp_path: Path, lines: list[str], names: list[str]) -> None:
    path = tmp_path / "own.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError) as error:
        read_rules(path)
    assert "\n" not in str(error.value)
    assert all(name in str(error.value) for name in [str(path), *names])


def test_a_file_of_rules_that_can_t_be_read_is_a_wrong_option(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    for name in ("missing.csv", "binary.csv"):
        with pytest.raises(UsageError, match=name):
            read_rules(tmp_path / name)
