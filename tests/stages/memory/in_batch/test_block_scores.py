"""None"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.in_batch.block_scores import BlockScores, TargetMatches
from stages.memory.in_batch.blocks import ScoreBlock, mirrored_blocks, visible_blocks
from stages.memory.in_batch.visible import others
from tests.builders.visible import visibles

OWN = torch.arange(10)
VISIBLE = others(OWN // 5 * 5, OWN // 5 * 5 + 5, OWN, 10, local=True)
SCALE = 0.3


def drawn(seed, dtype=torch.float32):
    return torch.randn(10, 4, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def made(mirrored, queries, dtype):
    """Blocks, their scores, and the whole matrix that they are of, natural and of -inf where
    nothing is visible.
    """
    keys = None if mirrored else drawn(1, queries.dtype)
    blocks = mirrored_blocks(VISIBLE, 4) if mirrored else visible_blocks(VISIBLE, 10, 4, 3)
    whole = SCALE * queries @ (queries if keys is None else keys).T
    whole = whole.masked_fill(VISIBLE.hides(slice(0, 10)), -torch.inf)
    return blocks, BlockScores(queries, keys, VISIBLE, blocks, SCALE, dtype), whole


@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_both_sides_hold_their_scores_whatever_the_last_block_left(mirrored, dtype):
    queries = drawn(0, torch.float64 if dtype == torch.float64 else torch.float32)
    blocks, scores_of, whole = made(mirrored, queries, dtype)
    assert any(block.mirror for block in blocks) == mirrored
    for block in blocks:
        sides = scores_of.sides(block)
        assert [side for side, _ in sides] == list(block.sides)
        for side, scores in sides:
            tolerance = {"rtol": 0.02, "atol": 0.02} if dtype == torch.bfloat16 else {}
            torch.testing.assert_close(
                scores * math.log(2), whole[side.rows, side.keys], **tolerance
            )
        for _, scores in sides:
            scores.fill_(torch.nan)


@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_side_may_be_overwritten_and_narrowed_without_loss_to_the_other(mirrored, dtype):
    blocks, scores_of, _ = made(mirrored, drawn(0), dtype)
    for block in blocks:
        (_, first), *mirror = scores_of.sides(block)
        before = [scores.clone() for _, scores in mirror]
        narrow = scores_of.narrowed(first.fill_(3))
        assert narrow.dtype == dtype
        assert narrow.eq(3).all()
        assert narrow.shape == first.shape
        assert all(
            torch.equal(scores, was) for (_, scores), was in zip(mirror, before, strict=True)
        )


@pytest.mark.parametrize("mirrored", [True, False])
def test_what_is_not_visible_is_minus_infinity_even_where_a_score_is_no_number(mirrored):
    queries = torch.full((10, 4), torch.nan)
    blocks, scores_of, whole = made(mirrored, queries, torch.float32)
    for block in blocks:
        for side, scores in scores_of.sides(block):
            assert torch.equal(scores.isneginf(), whole[side.rows, side.keys].isneginf())


@given(visibles(), st.integers(1, 4), st.integers(1, 5), st.booleans(), st.booleans())
@settings(deadline=None)
def test_hits_are_the_cells_whose_key_has_the_target_of_the_row(
    case, vocabulary, at_once, mirrored, transposed
):
    visible, keys = case
    keys = len(visible) if mirrored else keys
    made = torch.Generator().manual_seed(keys)
    targets = torch.randint(0, vocabulary, (len(visible),), generator=made)
    values = torch.randint(0, vocabulary, (keys,), generator=made)
    blocks = (
        mirrored_blocks(visible, at_once)
        if mirrored
        else visible_blocks(visible, keys, at_once, at_once + 1)
    )
    cells = TargetMatches(targets, values, blocks)
    for side in (side for block in blocks for side in block.sides):
        same = targets[side.rows, None] == values[side.keys]
        lying = same.T.contiguous().T if transposed else same
        matches = cells.matches(side, lying.stride())
        assert matches.rows.tolist() == same.nonzero()[:, 0].tolist()
        found = torch.zeros(same.numel(), dtype=torch.bool)
        found[matches.offsets] = True
        assert torch.equal(found.as_strided(same.shape, lying.stride()), same)
        assert len(matches.offsets) == same.sum()


@pytest.mark.parametrize(
    "blocks", [[], [ScoreBlock(slice(0, 2), slice(0, 3), True)]], ids=["no block", "no hit"]
)
def test_nothing_to_find(blocks):
    cells = TargetMatches(torch.tensor([7, 7]), torch.tensor([1, 2, 3]), blocks)
    assert [matches.tolist() for block in blocks for matches in cells.matches(block, (3, 1))] == [
        [],
        [],
    ] * len(blocks)
