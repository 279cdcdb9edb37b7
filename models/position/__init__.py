"""POSITIONS: every way of Ferry to tell the encoder where a token stands, in one table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from models.position.base import Position
from models.position.learned import LearnedPosition
from models.position.none import NoPosition
from models.position.sinusoidal import SinusoidalPosition

if TYPE_CHECKING:
    from models.config import EncoderConfig


@dataclass(frozen=True, kw_only=True)
class PositionRow:
    """What a position is and which verb it is made of."""

    build: Callable[["EncoderConfig"], Position]
    verb: Literal["none", "add", "rotate", "bias"]
    scaled: bool  # token embeddings are multiplied by √C, so that they weigh as much as fixed waves
    parameters: str
    summary: str


POSITIONS: dict[str, PositionRow] = {
    "none": PositionRow(
        build=lambda config: NoPosition(),
        verb="none",
        scaled=False,
        parameters="none",
        summary="a bag of tokens",
    ),
    "sinusoidal": PositionRow(
        build=lambda config: SinusoidalPosition(max_len=config.max_len, dim=config.dim),
        verb="add",
        scaled=True,
        parameters="none",
        summary="fixed waves of growing length",
    ),
    "learned": PositionRow(
        build=lambda config: LearnedPosition(max_len=config.max_len, dim=config.dim),
        verb="add",
        scaled=False,
        parameters="max_len·C",
        summary="one trained vector a position",
    ),
}
