"""A step that fits on no node is told which GPU, slice or count of this very cluster would do.

Tests gpuflow/checker/hints/refusals.py and gpuflow/checker/pipeline/nodes/findings.py.
"""

from __future__ import annotations

from tests.checker.advice_scenes import node, only, told

A100 = "NVIDIA-A100-SXM4-80GB"
H100 = "NVIDIA-H100-80GB-HBM3"


def hint(wish: str, *nodes: str, more: str = "") -> str:
    report = told(f"steps: {{a: {{command: [x], {wish}{more}}}}}", "".join(nodes))
    assert report.verdict == "never"
    return only(report, "GF506").hint or ""


def test_a_slice_that_no_node_is_cut_into_is_answered_with_those_that_nodes_are_cut_into() -> None:
    text_of = hint("mig: 3g.40gb of a100-80gb", node("n", A100, mig_1g_10gb="7"), node("m", A100, mig_2g_20gb="3"))
    assert "fits here, with less GPU memory: 2g.20gb of a100-80gb" in text_of
    assert text_of.index("2g.20gb of") < text_of.index("1g.10gb of")


def test_a_model_that_no_node_has_is_answered_with_one_of_as_much_memory() -> None:
    text_of = hint("gpu: l40s-48gb", node("n", H100, gpu="8"), node("m", "NVIDIA-L4", gpu="1"))
    assert "fits here, with as much GPU memory: h100-80gb" in text_of
    assert "fits here, with less GPU memory: l4-24gb" in text_of


def test_a_wish_for_any_gpu_with_enough_memory_is_answered_by_memory() -> None:
    text_of = hint("gpu: {memory: 60Gi}", node("n", A100, mig_3g_40gb="2"), node("m", "NVIDIA-L4", gpu="1"))
    assert "with as much GPU memory" not in text_of
    assert text_of.index("3g.40gb of a100-80gb") < text_of.index("l4-24gb")


def test_a_wish_of_absurd_size_is_answered_at_once() -> None:
    assert "holds at most 4 of a100-80gb" in hint("gpu: a100-80gb x 1000000", node("n", A100, gpu="4"))


def test_a_count_above_what_one_node_has_is_answered_with_the_count_that_fits() -> None:
    text_of = hint("gpu: a100-80gb x 8", node("n", A100, gpu="4"), node("m", A100, gpu="2"))
    assert "one node here holds at most 4 of a100-80gb for this step" in text_of


def test_a_wish_for_any_gpu_is_answered_with_a_count_or_with_slices() -> None:
    text_of = hint("gpu: 8", node("n", A100, gpu="4"), node("m", "NVIDIA-L4", gpu="2"))
    assert "one node here holds at most 4 of any GPU for this step: ask for 4 in each pod" in text_of
    text_of = hint("gpu: 1", node("n", A100, mig_1g_10gb="7"), node("m", A100, mig_3g_40gb="2"))
    assert text_of.splitlines()[-1] == "fits here: 3g.40gb of a100-80gb (39.25 GiB), 1g.10gb of a100-80gb (9.5 GiB)"


def test_what_fits_by_its_gpu_but_not_by_its_memory_is_not_suggested() -> None:
    text_of = hint("gpu: a100-80gb", node("n", H100, gpu="8"), more=", memory: 65Gi")
    assert "fits here" not in text_of


def test_several_whole_gpus_are_not_answered_with_slices() -> None:
    text_of = hint("gpu: a100-80gb x 2", node("n", A100, gpu="1"), node("m", A100, mig_1g_10gb="7"))
    assert "1g.10gb" not in text_of
    assert "1g.10gb" in hint("gpu: h100-80gb", node("m", A100, mig_1g_10gb="7"))


def test_a_step_without_gpus_gets_no_word_about_them() -> None:
    assert "GPU" not in hint("cpu: 9", node("n", A100, gpu="4"))


def test_gpus_are_also_recognized_by_the_labels_of_the_site() -> None:
    gke = node("n", None, gpu="1").replace("labels: {}", "labels: {cloud.google.com/gke-accelerator: nvidia-l4}")
    report = told("steps: {a: {command: [x], gpu: a100-80gb}}", gke, site="gke")
    assert "l4-24gb" in (only(report, "GF506").hint or "")
