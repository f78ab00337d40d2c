import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.in_batch.blocks import Block, mirrored_blocks, visible_blocks
from stages.memory.in_batch.target_matches import TargetMatches
from tests.stages.memory.in_batch.test_visible import visibles


@given(visibles(), st.integers(1, 4), st.integers(1, 5), st.booleans(), st.booleans())
@settings(deadline=None)
def test_hits_are_the_cells_whose_key_has_the_target_of_the_row(case, vocabulary, at_once, mirrored, transposed):
    visible, keys = case
    keys = len(visible) if mirrored else keys
    made = torch.Generator().manual_seed(keys)
    targets = torch.randint(0, vocabulary, (len(visible),), generator=made)
    values = torch.randint(0, vocabulary, (keys,), generator=made)
    blocks = mirrored_blocks(visible, at_once) if mirrored else visible_blocks(visible, keys, at_once, at_once + 1)
    cells = TargetMatches(targets, values, blocks)
    for side in (side for block in blocks for side in block.sides):
        same = targets[side.rows, None] == values[side.keys]
        lying = same.T.contiguous().T if transposed else same
        matches = cells.matches(side, lying.stride())
        assert matches.rows.tolist() == same.nonzero()[:, 0].tolist()
        found = torch.zeros(same.numel(), dtype=torch.bool)
        found[matches.cells] = True
        assert torch.equal(found.as_strided(same.shape, lying.stride()), same)
        assert len(matches.cells) == same.sum()


@pytest.mark.parametrize("blocks", [[], [Block(slice(0, 2), slice(0, 3), True)]], ids=["no block", "no hit"])
def test_nothing_to_find(blocks):
    cells = TargetMatches(torch.tensor([7, 7]), torch.tensor([1, 2, 3]), blocks)
    assert [matches.tolist() for block in blocks for matches in cells.matches(block, (3, 1))] == [[], []] * len(blocks)
