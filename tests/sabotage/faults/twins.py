"""Faults of the function: a twin with the genuine weights, exported in every format."""

from collections.abc import Callable
from functools import partial

from torch import nn

from export.torchscript import TORCHSCRIPT_FILE
from models.attention.sdpa import SDPAttention
from models.block import PreNormBlock
from models.encoder import Encoder
from models.heads import TextClassifier, TokenTagger
from models.pooling import MeanMaxPooling
from models.position.sinusoidal import SinusoidalPosition
from tests.sabotage.faults import forward_twins as whole
from tests.sabotage.faults import part_twins as parts
from tests.sabotage.faults import tagger_twins as taggers
from tests.sabotage.faults.fault import CLASSIFIER, DEEP, TAGGER, Fault
from tests.sabotage.tools import SHORT, become, export_twin, formats

Change = Callable[[nn.Module], object]


def _epsilon(value: float, *, first_only: bool) -> Change:
    def change(model: nn.Module) -> None:
        norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
        for norm in norms[:1] if first_only else norms:
            norm.eps = value

    return change


def _activation(build: Callable[[], nn.Module], *, where: str = "feed_forward.activation") -> Change:
    def change(model: nn.Module) -> None:
        for name in [name for name, _ in model.named_modules()]:
            if name.endswith(where):
                parent = model.get_submodule(name.rpartition(".")[0])
                setattr(parent, name.rpartition(".")[2], build())

    return change


def _causal(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, SDPAttention):
            module.causal = True


def _more_heads(model: nn.Module) -> None:
    for block in model.encoder.blocks:
        block.attention.num_heads = 4


def _unscaled(model: nn.Module) -> None:
    model.encoder.scale = 1.0


def _whole(twin: type[nn.Module]) -> Change:
    return become(TextClassifier, twin)


def _attend(twin: type[nn.Module]) -> Change:
    return become(SDPAttention, twin)


def _pool(twin: type[nn.Module]) -> Change:
    return become(MeanMaxPooling, twin)


def _encode(twin: type[nn.Module]) -> Change:
    return become(Encoder, twin)


def _block(twin: type[nn.Module]) -> Change:
    return become(PreNormBlock, twin, first_only=True)


def _position(twin: type[nn.Module]) -> Change:
    return become(SinusoidalPosition, twin)


def _tagger(twin: type[nn.Module]) -> Change:
    return become(TokenTagger, twin)


# Each: its name, the kind it stands for, what is changed, and whether the function moves beyond the budget.
TWINS: tuple[tuple[str, str, Change, bool], ...] = (
    ("epsilon-9e-6-once", "epsilon", _epsilon(9e-6, first_only=True), False),
    ("epsilon-1e-12", "epsilon", _epsilon(1e-12, first_only=False), True),
    ("epsilon-1e-3", "epsilon", _epsilon(1e-3, first_only=False), True),
    ("gelu-by-tanh", "GELU by its approximation", _activation(lambda: nn.GELU(approximate="tanh")), True),
    ("gelu-by-sigmoid", "GELU by its approximation", _activation(parts.QuickGelu), True),
    ("relu-for-gelu", "another mechanism", _activation(nn.ReLU), True),
    ("head-relu", "another mechanism", _activation(nn.ReLU, where="head.2"), True),
    ("causal", "causal for full", _causal, True),
    ("window", "another mechanism", _attend(parts.Window), True),
    ("four-heads", "another mechanism", _more_heads, True),
    ("embedding-unscaled", "positions left out", _unscaled, True),
    ("query-key-swapped", "attention computed otherwise", _attend(parts.QueryAndKeySwapped), True),
    ("scale-not-rooted", "attention computed otherwise", _attend(parts.ScaleNotRooted), True),
    ("scale-of-width", "attention computed otherwise", _attend(parts.ScaleOfTheWidth), True),
    ("heads-permuted", "attention computed otherwise", _attend(parts.HeadsPermuted), True),
    ("keys-unmasked", "mask ignored", _attend(parts.KeysUnmasked), True),
    ("mask-1e20", "-1e20 for a mask", _attend(parts.FiniteMask), False),
    ("mask-of-10", "mask ignored", _attend(parts.WeakMask), True),
    ("residual-dropped", "layers out of order", _block(parts.ResidualDropped), True),
    ("norm-after", "another mechanism", _block(parts.NormAfter), True),
    ("parts-swapped", "layers out of order", _block(parts.PartsSwapped), True),
    ("layer-skipped", "layers out of order", _encode(parts.LayerSkipped), True),
    ("layer-twice", "layers out of order", _encode(parts.LayerTwice), True),
    ("layers-reversed", "layers out of order", _encode(parts.LayersReversed), True),
    ("norm-twice", "layers out of order", _encode(parts.NormTwice), True),
    ("no-positions", "positions left out", _encode(parts.WithoutPositions), True),
    ("column-positions", "positions off by one", _encode(parts.PositionsOfColumns), True),
    ("positions-off-by-one", "positions off by one", _position(parts.PositionsOffByOne), True),
    ("last-position", "wrong at one shape", _position(parts.LastPositionWrong), True),
    ("mean-over-columns", "pooled over padding", _pool(parts.MeanOverAllColumns), True),
    ("max-over-padding", "pooled over padding", _pool(parts.MaxOverPadding), True),
    ("max-then-mean", "pooled over padding", _pool(parts.MaxThenMean), True),
    ("mean-without-cls", "pooled over padding", _pool(parts.MeanWithoutSpecials), True),
    ("empty-mean", "empty row NaN", _pool(parts.EmptyMeanIsNaN), True),
    ("empty-row", "empty row NaN", _whole(whole.EmptyRowIsNaN), True),
    ("mask-ignored", "mask ignored", _whole(whole.MaskIgnored), True),
    ("mask-inverted", "mask inverted", _whole(whole.MaskInverted), True),
    ("mask-from-ids", "padding answered", _whole(whole.PadIdIsPadding), True),
    ("inputs-swapped", "inputs swapped", _whole(whole.InputsSwapped), True),
    ("sees-padding", "answer depends on padding", _whole(whole.SeesPadding), True),
    ("sees-company", "answer depends on the batch", _whole(whole.SeesCompany), True),
    ("sees-neighbours", "answer depends on the batch", _whole(whole.SeesNeighbours), True),
    ("first-row-for-all", "answer depends on the batch", _whole(whole.FirstRowForAll), True),
    ("rows-reversed", "answer depends on the batch", _whole(whole.RowsReversed), True),
    ("softmax-twice", "softmax twice", _whole(whole.SoftmaxTwice), True),
    ("log-softmax", "softmax twice", _whole(whole.LogSoftmax), True),
    ("sigmoid-inside", "softmax twice", _whole(whole.SigmoidInside), True),
    ("temperature-inside", "softmax twice", _whole(whole.TemperatureInside), True),
    ("logits-permuted", "logits changed", _whole(whole.LogitsPermuted), True),
    ("logits-capped", "logits changed", _whole(whole.LogitsCapped), True),
    ("logits-x1.001", "logits changed", _whole(whole.LogitsScaled), True),
    ("logits-by-a-hair", "operator that changes nothing", _whole(whole.LogitsByAHair), False),
    ("at-longest-only", "wrong at one shape", _whole(whole.AtLongestOnly), True),
    ("at-one-length", "wrong at one shape", _whole(whole.AtOneLengthOnly), True),
    ("in-large-batches", "wrong at one shape", _whole(whole.InLargeBatchesOnly), True),
    ("at-one-id", "backdoor", _whole(whole.AtOneId), True),
    ("ids-as-uint8", "int64 as int32", _whole(whole.IdsClamped), True),
    ("ids-through-float", "operator that changes nothing", _whole(whole.IdsThroughFloat), False),
    ("through-half", "half precision inside", _whole(whole.ThroughHalf), True),
    ("through-double", "operator that changes nothing", _whole(whole.ThroughDouble), False),
    ("fake-quantised", "half precision inside", _whole(whole.FakeQuantised), True),
    ("noise", "dropout left on", _whole(whole.Nondeterministic), False),
    ("hidden-nan", "logits changed", _whole(whole.HiddenNaN), True),
)
HIDDEN_TWINS: tuple[tuple[str, str, Change], ...] = (("at-two-ids", "backdoor", _whole(whole.AtTwoIds)),)
TAGGER_TWINS: tuple[tuple[str, str, Change], ...] = (
    ("shifts-tokens", "tokens put back elsewhere", _tagger(taggers.ShiftsTokens)),
    ("answers-padding", "padding answered", _tagger(taggers.AnswersPadding)),
    ("token-sees-padding", "answer depends on padding", _tagger(taggers.TokenSeesPadding)),
    ("token-sees-company", "answer depends on the batch", _tagger(taggers.TokenSeesCompany)),
    ("left-aligned", "tokens put back elsewhere", _tagger(taggers.LeftAligned)),
)


# What public reports and the promises name most often stands in every format; each of the others in one, in turn.
EVERYWHERE = frozenset(
    {
        *("mask-ignored", "mask-inverted", "sees-padding", "sees-company", "softmax-twice", "at-two-ids"),
        *("positions-off-by-one", "epsilon-9e-6-once", "gelu-by-tanh", "causal", "empty-mean", "mean-over-columns"),
        *("query-key-swapped", "heads-permuted", "scale-not-rooted", "mask-1e20", "layer-skipped", "at-one-length"),
        *("in-large-batches", "logits-by-a-hair", "shifts-tokens", "token-sees-padding"),
    }
)


TWO_LAYERS = frozenset({"layer-skipped", "layer-twice", "layers-reversed"})


def _rows() -> list[Fault]:
    rows = []
    every = (
        *(
            (name, kind, change, moves, False, DEEP if name in TWO_LAYERS else CLASSIFIER)
            for name, kind, change, moves in TWINS
        ),
        *((name, kind, change, False, True, CLASSIFIER) for name, kind, change in HIDDEN_TWINS),
        *((name, kind, change, True, False, TAGGER) for name, kind, change in TAGGER_TWINS),
    )
    assert {name for name, *_ in every} >= EVERYWHERE
    for place, (name, kind, change, moves, hidden, base) in enumerate(every):
        for file in formats(place, everywhere=name in EVERYWHERE):
            plant = partial(export_twin, file=file, change=change)
            rows.append(
                Fault(id=f"{SHORT[file]}-{name}", kind=kind, plant=plant, base=base, moves=moves, hidden=hidden)
            )
    # What cuts rows or columns can't be exported to ONNX with these axes: there a graph is edited instead.
    for name, twin in (("length-frozen", whole.LengthFrozen), ("batch-frozen", whole.BatchFrozen)):
        plant = partial(export_twin, file=TORCHSCRIPT_FILE, change=_whole(twin))
        rows.append(Fault(id=f"pt-{name}", kind="dynamic axis frozen", plant=plant, moves=True))
    return rows


FAULTS = tuple(_rows())
