"""On which execution provider the nodes of an ONNX Runtime session ran, and whether that is where they belong.

The rule: every node that yields a float tensor runs on the provider asked for. ONNX Runtime puts integer shape
arithmetic on the CPU by design; such nodes are allowed there and listed. A node whose output type is unknown counts as
float.

The table is ONNX Runtime's own (`session.record_ep_graph_assignment_info`, since 1.24). It is taken when the graph is
divided among the providers: later fusions keep the provider of the nodes that they join.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
CPU_PROVIDER = PROVIDERS["cpu"]


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One node: where it ran, and whether it yields a float tensor."""

    node: str
    operator: str
    provider: str
    yields_float: bool


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The verdict on one session. `integer_nodes` ran on the CPU and may; `faults` is empty if all is well."""

    provider: str
    options: Mapping[str, str]
    nodes: int
    float_nodes: int
    integer_nodes: tuple[Assignment, ...]
    faults: tuple[str, ...]


def judge_placement(
    assignments: Sequence[Assignment],
    provider: str,
    *,
    options: Mapping[str, str],
    required_options: Mapping[str, str],
) -> Placement:
    """Judge an assignment table, and the options that are in force, against what was asked for.

    Args:
        assignments: every node of the graph.
        provider: the provider asked for, by ONNX Runtime's name.
        options: the provider's options as the session reports them.
        required_options: the options that must be among them, such as TF32 off; they are recorded.
    """
    faults = [
        f"the option {name} of {provider} is {options.get(name)}, asked {value}"
        for name, value in required_options.items()
        if options.get(name) != value
    ]
    if not any(assignment.yields_float for assignment in assignments):
        faults.append(f"no node in the table yields a float tensor, so nothing proves that {provider} ran")
    integer_nodes = []
    for assignment in assignments:
        if assignment.provider == provider:
            continue
        if assignment.provider == CPU_PROVIDER and not assignment.yields_float:
            integer_nodes.append(assignment)
        else:
            faults.append(f"{assignment.operator} {assignment.node} ran on {assignment.provider}, asked {provider}")
    return Placement(
        provider=provider,
        options={name: options.get(name, "") for name in required_options},
        nodes=len(assignments),
        float_nodes=sum(assignment.yields_float for assignment in assignments),
        integer_nodes=tuple(integer_nodes),
        faults=tuple(faults),
    )
