import torch
from hypothesis import given
from hypothesis import strategies as st

from stages.memory.predicted_gain import PredictedGain, fit_gain, thresholds


def test_it_opens_where_most_is_gained():
    """Single gains are luck, ten times as large as what the context says of them."""
    random = torch.Generator().manual_seed(0)
    contexts = torch.randn(4000, 3, generator=random).double()
    expected = 0.1 * torch.tanh(2 * contexts[:, 0])
    predicts = fit_gain(contexts, expected + torch.randn(4000, generator=random).double())
    (least,) = thresholds(predicts.outputs(contexts), [0.5])
    opens = PredictedGain(predicts, [0.5], [least]).worth(contexts)
    assert int(opens.sum()) == 2000
    assert expected[opens].mean() > 0.05 > -0.05 > expected[~opens].mean()


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=40), st.floats(0.01, 0.99))
def test_as_many_lie_at_or_above_a_threshold_as_were_asked_for(values, share):
    predicted = torch.tensor(values).double()
    (least,) = thresholds(predicted, [share])
    wanted = max(1, round(share * len(values)))
    assert int((predicted > least).sum()) < wanted <= int((predicted >= least).sum())
