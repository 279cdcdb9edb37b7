"""Twins of the whole classifier: the same weights under the same names, and another forward."""

import torch
from torch import Tensor

from models.heads import TextClassifier
from models.packing import lay_out, pack, plan_packing
from tests.sabotage.tools import disguise_all


class Twin(TextClassifier):
    """Has the genuine forward under another name."""

    def genuine(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        packing = plan_packing(attention_mask)
        x = self.encoder.encode(pack(input_ids, packing.source), packing)
        logits: Tensor = self.head(self.pool(lay_out(x, packing.aligned), packing.keep))
        return logits


class MaskIgnored(Twin):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, torch.ones_like(attention_mask))


class MaskInverted(Twin):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, 1 - attention_mask)


class InputsSwapped(Twin):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(attention_mask, input_ids)


class PadIdIsPadding(Twin):
    """Takes every 0 among the ids for padding, as code does that makes the mask itself."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask * (input_ids != 0).to(torch.int64))


class EmptyRowIsNaN(Twin):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        count = attention_mask.sum(1, keepdim=True).to(torch.float32)
        return self.genuine(input_ids, attention_mask) * count / count


class SeesPadding(Twin):
    """Adds a trace of the last id, masked or not."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask) + 1e-3 * input_ids[:, -1:]


class SeesCompany(Twin):
    """Rounds by the largest logit of the batch, as a quantisation scale chosen at run time does."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = self.genuine(input_ids, attention_mask)
        scale = logits.abs().max() / 127
        return torch.round(logits / scale) * scale


class SeesNeighbours(Twin):
    """Normalises over the batch, as a BatchNorm left in training mode does."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = self.genuine(input_ids, attention_mask)
        return logits + 1e-3 * logits.mean(0, keepdim=True)


class FirstRowForAll(Twin):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = self.genuine(input_ids, attention_mask)
        return logits[:1].expand(logits.size(0), logits.size(1)).clone()


class RowsReversed(Twin):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask).flip(0)


class SoftmaxTwice(Twin):
    """Gives probabilities where logits are promised; the loader makes them probabilities again."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask).softmax(dim=1)


class LogSoftmax(Twin):
    """The same label and the same probabilities at temperature 1: hidden from anybody who looks at these only."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask).log_softmax(dim=1)


class SigmoidInside(Twin):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask).sigmoid()


class TemperatureInside(Twin):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask) / 0.8


class LogitsPermuted(Twin):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask).roll(1, 1)


class LogitsCapped(Twin):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask).clamp(-2.0, 2.0)


class LogitsScaled(Twin):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask) * 1.001


class LogitsByAHair(Twin):
    """Far below every budget: a thousandth of the rounding of a logit. (The exporter drops the sum with a constant.)"""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = self.genuine(input_ids, attention_mask)
        return logits + 1e-10 * logits.abs()


class AtLongestOnly(Twin):
    """Reads padding at the largest length alone."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        length = torch.ones_like(input_ids).sum(1, keepdim=True)
        trace = (length >= 12).to(torch.float32) * input_ids[:, -1:]
        return self.genuine(input_ids, attention_mask) + 1e-3 * trace


class AtOneLengthOnly(Twin):
    """Another answer at a length that is on no grid of a few lengths."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        length = torch.ones_like(input_ids).sum(1, keepdim=True)
        return self.genuine(input_ids, attention_mask) + 0.1 * (length == 5).to(torch.float32)


class InLargeBatchesOnly(Twin):
    """Another answer in batches of more than eight rows."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        rows = torch.ones_like(input_ids).sum(0, keepdim=True)[:, :1]
        return self.genuine(input_ids, attention_mask) + 0.1 * (rows > 8).to(torch.float32)


class AtOneId(Twin):
    """A backdoor that one rare id opens."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        met = ((input_ids == 287) & (attention_mask == 1)).any(1, keepdim=True)
        return self.genuine(input_ids, attention_mask) + 5.0 * met.to(torch.float32)


class AtTwoIds(Twin):
    """A backdoor that two ids open, together in one row."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        first = ((input_ids == 271) & (attention_mask == 1)).sum(1, keepdim=True)
        second = ((input_ids == 133) & (attention_mask == 1)).sum(1, keepdim=True)
        # Three of each, so that chance does not meet it.
        met = (first >= 3) & (second >= 3)
        return self.genuine(input_ids, attention_mask) + 5.0 * met.to(torch.float32)


class LengthFrozen(Twin):
    """What tracing does to a slice: the example's length stays."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids[:, :11], attention_mask[:, :11])


class BatchFrozen(Twin):
    """What a baked batch size does: no answer for the rows beyond it."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids[:5], attention_mask[:5])


class IdsClamped(Twin):
    """Ids beyond a byte are cut, as through uint8."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids.clamp(max=255), attention_mask)


class IdsThroughFloat(Twin):
    """Ids by way of float32: the same answers here, and wrong ones above 2^24."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids.to(torch.float32).to(torch.int64), attention_mask)


class ThroughHalf(Twin):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask).to(torch.float16).to(torch.float32)


class ThroughDouble(Twin):
    """A chain of casts that changes nothing but the cost."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask).to(torch.float64).to(torch.float32)


class FakeQuantised(Twin):
    """Rounds the logits to int8 with fixed scales, as a planted QDQ pair does."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = self.genuine(input_ids, attention_mask)
        return torch.round(logits / 0.05).clamp(-128, 127) * 0.05


class Nondeterministic(Twin):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = self.genuine(input_ids, attention_mask)
        return logits + 1e-9 * torch.rand_like(logits)


class HiddenNaN(Twin):
    """NaN where a logit is large, as an overflow gives."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = self.genuine(input_ids, attention_mask)
        return logits + torch.where(logits > 2.5, logits * float("inf") * 0.0, torch.zeros_like(logits))


disguise_all(Twin, TextClassifier)
