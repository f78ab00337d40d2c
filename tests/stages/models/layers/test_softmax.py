import pytest
import torch
import torch.nn.functional as F

from stages.models.layers.softmax import SHORT, causal_attention


def tensors(dtype, length=9):
    generator = torch.Generator().manual_seed(0)
    qkv = (torch.randn(2, 3, length, 4, generator=generator).to(dtype) for _ in range(3))
    return [tensor.requires_grad_() for tensor in qkv]


@pytest.mark.parametrize("length", [1, 9, SHORT + 1])
def test_bf16_is_as_near_to_the_truth_as_torch(length):
    q, k, v = tensors(torch.bfloat16, length)
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    weight = torch.linspace(-1, 1, exact.numel()).reshape(exact.shape)
    want = [exact, *torch.autograd.grad((exact * weight).sum(), (q, k, v))]
    y = causal_attention(q, k, v)
    got = [y, *torch.autograd.grad((y * weight).sum(), (q, k, v))]
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=0.05, atol=0.05)


def test_fp32_is_torchs_own():
    q, k, v = tensors(torch.float32)
    assert torch.equal(
        causal_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True)
    )


def test_dropout_removes_whole_weights_and_keeps_the_mean():
    q, k, _ = tensors(torch.bfloat16, 64)
    v = torch.ones_like(q)
    torch.manual_seed(0)
    dropped = causal_attention(q, k, v, 0.5).detach().float()
    assert dropped.std() > 0.1
    assert dropped.mean() == pytest.approx(1.0, abs=0.15)
