"""No position: the encoder sees a bag of tokens, and permuting them permutes its outputs.

Cost: none.
"""

from models.position.base import Position


class NoPosition(Position):
    """All three verbs are null."""
