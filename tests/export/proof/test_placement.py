"""The rule of placement against tables made by hand: CUDA can be judged where there is none."""

from export.proof.placement import PROVIDERS, Assignment, Placement, judge_placement

CPU, CUDA = PROVIDERS["cpu"], PROVIDERS["cuda"]
NO_TF32 = {"use_tf32": "0"}


def assignment(node: str, provider: str, *, yields_float: bool) -> Assignment:
    return Assignment(node=node, operator="Op", provider=provider, yields_float=yields_float)


def judge(*assignments: Assignment, provider: str = CUDA, tf32: str = "0") -> Placement:
    return judge_placement(assignments, provider, options={"use_tf32": tf32}, required_options=NO_TF32)


def test_floats_on_cuda_and_shapes_on_the_cpu_are_well_placed() -> None:
    shape = assignment("shape", CPU, yields_float=False)
    placement = judge(assignment("matmul", CUDA, yields_float=True), shape, assignment("ids", CUDA, yields_float=False))
    assert placement.faults == ()
    assert placement.integer_nodes == (shape,)
    assert (placement.nodes, placement.float_nodes) == (3, 1)
    assert placement.options == NO_TF32


def test_a_float_node_on_the_cpu_is_a_fault_named_by_node() -> None:
    placement = judge(assignment("matmul", CUDA, yields_float=True), assignment("gelu", CPU, yields_float=True))
    assert placement.faults == (f"Op gelu ran on {CPU}, asked {CUDA}",)


def test_everything_on_the_cpu_is_what_silent_fallback_looks_like() -> None:
    placement = judge(assignment("matmul", CPU, yields_float=True), assignment("shape", CPU, yields_float=False))
    assert len(placement.faults) == 1


def test_a_third_provider_is_a_fault_for_integers_too() -> None:
    placement = judge(
        assignment("matmul", CPU, yields_float=True),
        assignment("shape", "TensorrtExecutionProvider", yields_float=False),
        provider=CPU,
    )
    assert len(placement.faults) == 1


def test_an_empty_table_proves_nothing() -> None:
    assert judge().faults
    assert judge(assignment("shape", CUDA, yields_float=False)).faults


def test_every_fault_is_listed_in_the_order_of_the_table() -> None:
    placement = judge(
        assignment("gelu", CPU, yields_float=True),
        assignment("matmul", CUDA, yields_float=True),
        assignment("softmax", CPU, yields_float=True),
        assignment("shape", CPU, yields_float=False),
        tf32="1",
    )
    assert placement.faults == (
        f"the option use_tf32 of {CUDA} is 1, asked 0",
        f"Op gelu ran on {CPU}, asked {CUDA}",
        f"Op softmax ran on {CPU}, asked {CUDA}",
    )
    assert [node.node for node in placement.integer_nodes] == ["shape"]


def test_an_option_that_the_session_does_not_report_is_a_fault() -> None:
    node = assignment("matmul", CUDA, yields_float=True)
    placement = judge_placement([node], CUDA, options={}, required_options=NO_TF32)
    assert placement.faults == (f"the option use_tf32 of {CUDA} is None, asked 0",)


def test_a_node_without_a_provider_is_a_fault() -> None:
    placement = judge(assignment("matmul", CUDA, yields_float=True), assignment("lost", "", yields_float=False))
    assert placement.faults == (f"Op lost ran on , asked {CUDA}",)


def test_tf32_left_on_is_a_fault() -> None:
    node = assignment("matmul", CUDA, yields_float=True)
    assert judge(node).faults == ()
    assert judge(node, tf32="1").faults == (f"the option use_tf32 of {CUDA} is 1, asked 0",)
