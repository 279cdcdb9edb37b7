"""What the eager model computes at each of its points, in the order in which it computes it.

Hooks see every call of a module. A position's verbs and the encoder's `encode` are plain methods; those are wrapped.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from export.node_names import is_inside
from export.proof.cases import Case
from export.proof.localise.points import FORWARD, GIVES, TAKES, Array, Point
from models.encoder import Encoder
from models.position.base import Position

# Methods that stand for a step of their own and are no module's forward.
METHODS: dict[type[nn.Module], tuple[str, ...]] = {Encoder: ("encode",), Position: ("add", "rotate", "bias")}


@dataclass(frozen=True, kw_only=True)
class EagerValue:
    """The value at a point; `maker` is the point that gave what this one takes, `outer` the module that made the call.

    `maker` is None where the value came from no observed call, such as the sum of a residual. `tensor` is one number
    for each tensor, wherever it is seen; `leaf` tells whether the module holds no others.
    """

    point: Point
    value: Array
    maker: Point | None
    outer: str
    tensor: int
    leaf: bool


@dataclass
class _Recorder:
    """Follows the calls of one run."""

    paths: dict[int, list[str]]
    leaves: frozenset[str]
    values: list[EagerValue] = field(default_factory=list)
    # The call of each module that is under way, innermost last.
    stack: list[tuple[str, str, int]] = field(default_factory=list)
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    makers: dict[int, Point] = field(default_factory=dict)
    # Keeps every tensor alive, so that an id stands for one tensor.
    seen: list[Tensor] = field(default_factory=list)

    def enter(self, module: nn.Module, method: str, arguments: tuple[Any, ...]) -> None:
        outer = self.stack[-1][0] if self.stack else ""
        # A module that stands in several places goes by the name that it has where it is called.
        paths = self.paths[id(module)]
        path = next((name for name in paths if is_inside(name, outer)), paths[0])
        number = self.numbers.get((path, method), 0)
        self.numbers[path, method] = number + 1
        self._record(Point(path, method, number, TAKES), arguments, outer)
        self.stack.append((path, method, number))

    def leave(self, result: object, taken: object) -> None:
        path, method, number = self.stack.pop()
        point = Point(path, method, number, GIVES)
        tensor = self._record(point, result, self.stack[-1][0] if self.stack else "")
        # What only hands on, such as dropout at rest, makes nothing.
        if tensor is not None and tensor is not first_tensor(taken):
            self.makers.setdefault(id(tensor), point)

    def _record(self, point: Point, values: object, outer: str) -> Tensor | None:
        tensor = first_tensor(values)
        if tensor is not None:
            self.seen.append(tensor)
            value = EagerValue(
                point=point,
                value=tensor.numpy().copy(),
                maker=self.makers.get(id(tensor)),
                outer=outer,
                tensor=id(tensor),
                leaf=point.module in self.leaves,
            )
            self.values.append(value)
        return tensor


def trace_eager(model: nn.Module, case: Case) -> list[EagerValue]:
    """Run a model on an input and return the value at every point, in the order of execution."""
    named = dict(model.named_modules(remove_duplicate=False))
    paths: dict[int, list[str]] = {}
    for path, module in named.items():
        paths.setdefault(id(module), []).append(path)
    leaves = frozenset(path for path, module in named.items() if not any(module.children()))
    recorder = _Recorder(paths, leaves)
    with ExitStack() as stack, torch.inference_mode():
        for module in model.modules():
            stack.enter_context(_watched(module, recorder))
        model(torch.from_numpy(case.input_ids), torch.from_numpy(case.attention_mask))
    return recorder.values


def first_tensor(values: object) -> Tensor | None:
    """Return the first tensor of arguments or results; None if there is none, or the first is no tensor."""
    first = values[0] if isinstance(values, tuple) and values else values
    return first if isinstance(first, Tensor) else None


@contextmanager
def _watched(module: nn.Module, recorder: _Recorder) -> Iterator[None]:
    before = module.register_forward_pre_hook(lambda called, taken: recorder.enter(called, FORWARD, taken))
    after = module.register_forward_hook(lambda _, taken, result: recorder.leave(result, taken))
    methods = [name for kind, names in METHODS.items() if isinstance(module, kind) for name in names]
    for name in methods:
        setattr(module, name, _wrapped(module, name, recorder))
    try:
        yield
    finally:
        before.remove()
        after.remove()
        for name in methods:
            delattr(module, name)


def _wrapped(module: nn.Module, name: str, recorder: _Recorder) -> Callable[..., Any]:
    method = getattr(module, name)

    def call(*taken: Any) -> Any:
        recorder.enter(module, name, taken)
        result = method(*taken)
        recorder.leave(result, taken)
        return result

    return call
