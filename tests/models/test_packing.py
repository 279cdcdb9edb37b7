"""Packing: where tokens go, and that they come back."""

import pytest
import torch

from models.packing import lay_out, pack, plan_packing, unpack

MASKS = {
    "B2-T3-ones": [[1, 1, 1], [1, 1, 1]],
    "B2-T4-right": [[1, 1, 0, 0], [1, 1, 1, 0]],
    "B2-T4-left": [[0, 0, 1, 1], [0, 1, 1, 1]],
    "B3-T5-holes": [[1, 0, 1, 0, 1], [0, 1, 0, 0, 1], [1, 1, 0, 1, 0]],
    "B3-T2-empty_row_first": [[0, 0], [1, 1], [0, 1]],
    "B3-T2-empty_row_last": [[1, 0], [1, 1], [0, 0]],
    "B2-T3-all_empty": [[0, 0, 0], [0, 0, 0]],
    "B1-T1-token": [[1]],
    "B1-T1-empty": [[0]],
}


@pytest.mark.parametrize("rows", MASKS.values(), ids=MASKS.keys())
def test_plan_equals_counting_by_hand(rows: list[list[int]]) -> None:
    T = len(rows[0])
    kept = [(b, t) for b, row in enumerate(rows) for t, bit in enumerate(row) if bit] or [(0, 0)]
    seen = [sum(rows[b][:t]) for b, t in kept]
    # Never one column alone.
    L = max(2, *(sum(row) for row in rows))
    packing = plan_packing(torch.tensor(rows))

    assert packing.counts.tolist() == [sum(row) for row in rows]
    assert packing.keep.tolist() == [[t < sum(row) for t in range(L)] for row in rows]
    assert packing.seen.tolist() == [[t < max(1, sum(row)) for t in range(L)] for row in rows]
    assert packing.column.tolist() == list(range(L))
    assert packing.source.tolist() == [b * T + t for b, t in kept]
    assert packing.position.tolist() == seen
    assert packing.slot.tolist() == [b * L + t for (b, _), t in zip(kept, seen, strict=True)]
    for tokens, cells in (
        (packing.home, {cell: n for n, cell in enumerate(kept)}),
        (packing.aligned, {(b, t): n for n, ((b, _), t) in enumerate(zip(kept, seen, strict=True))}),
    ):
        for b, row in enumerate(tokens.tolist()):
            # Cells without a token repeat one of their row's; an empty row has none, and takes any.
            own = {n for n, (owner, _) in enumerate(kept) if owner == b} if any(rows[b]) else set(range(len(kept)))
            assert set(row) <= own
            assert all(row[t] == n for (owner, t), n in cells.items() if owner == b)


@pytest.mark.parametrize("rows", MASKS.values(), ids=MASKS.keys())
def test_tokens_come_back_and_padding_is_zero(rows: list[list[int]]) -> None:
    mask = torch.tensor(rows)
    packing = plan_packing(mask)
    x = torch.randn(*mask.shape, 3)
    packed = pack(x, packing.source)
    assert torch.equal(unpack(packed, packing.home, mask != 0), x * mask[:, :, None])
    aligned = lay_out(packed, packing.aligned)
    assert torch.equal(pack(aligned, packing.slot), packed)
    assert torch.equal(unpack(packed, packing.aligned, packing.keep), aligned * packing.keep[:, :, None])


def test_the_rectangle_is_no_wider_than_the_longest_row() -> None:
    wide = torch.nn.functional.pad(torch.tensor(MASKS["B3-T5-holes"]), (0, 500))
    assert plan_packing(wide).aligned.shape == (3, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_the_rectangle_has_the_dtype_of_the_tokens(dtype: torch.dtype) -> None:
    packing = plan_packing(torch.tensor([[1, 0], [0, 0]]))
    assert unpack(torch.ones(1, 2, dtype=dtype), packing.aligned, packing.keep).dtype == dtype


def test_gradients_reach_each_token_once() -> None:
    packing = plan_packing(torch.tensor(MASKS["B3-T5-holes"]))
    x = torch.randn(8, 2, requires_grad=True)
    unpack(x, packing.aligned, packing.keep).sum().backward()
    assert x.grad is not None
    assert x.grad.eq(1).all()


def test_a_mask_without_a_batch_axis_is_refused() -> None:
    with pytest.raises(ValueError, match=r"attention_mask must be \(batch, sequence\); got 1 dimensions"):
        plan_packing(torch.tensor([1, 1, 0]))
