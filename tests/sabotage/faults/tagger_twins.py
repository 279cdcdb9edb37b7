"""Twins of the tagger: the same weights under the same names, and another forward."""

import torch
from torch import Tensor, nn

from models.heads import TokenTagger
from models.packing import pack, plan_packing, unpack
from tests.sabotage.tools import disguise_all


class Twin(TokenTagger):
    """Has the genuine forward under another name."""

    def genuine(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        packing = plan_packing(attention_mask)
        logits: Tensor = self.head(self.encoder.encode(pack(input_ids, packing.source), packing))
        return unpack(logits, packing.home, attention_mask != 0)


class ShiftsTokens(Twin):
    """Answers each token with its neighbour's logits, as when packed tokens are put back one place off."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask).roll(1, 1)


class AnswersPadding(Twin):
    """Leaves something at padding, where zeros are promised."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.genuine(input_ids, attention_mask) + 1e-3 * (1 - attention_mask).unsqueeze(2)


class TokenSeesPadding(Twin):
    """Adds a trace of the last id, masked or not, at every token."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        trace = 1e-3 * (input_ids[:, -1:] * attention_mask).unsqueeze(2)
        return self.genuine(input_ids, attention_mask) + trace


class TokenSeesCompany(Twin):
    """Rounds by the largest logit of the batch, as a quantisation scale chosen at run time does."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = self.genuine(input_ids, attention_mask)
        scale = logits.abs().max() / 127
        return torch.round(logits / scale) * scale


class LeftAligned(Twin):
    """Puts answers at the beginning of the row, wherever the tokens stood."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        packing = plan_packing(attention_mask)
        logits: Tensor = self.head(self.encoder.encode(pack(input_ids, packing.source), packing))
        left = unpack(logits, packing.aligned, packing.keep)
        return nn.functional.pad(left, (0, 0, 0, attention_mask.size(1) - left.size(1)))


disguise_all(Twin, TokenTagger)
