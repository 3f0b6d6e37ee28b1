from __future__ import annotations

import pytest
import torch
from torch import nn

from bourn.engines.hf.forward import packing
from bourn.engines.hf.forward.packing import PackedLinear, pack
from bourn.engines.hf.forward.support import slots_refusal
from tests.support.tiny_models import tiny

IDS = torch.tensor([[5, 9, 4, 33, 60, 12, 7, 81]])

able = pytest.mark.skipif(not packing._able(), reason="this CPU gains nothing by it")


def linear(*, bias: bool = True) -> nn.Linear:
    return nn.Linear(32, 48, bias=bias, dtype=torch.bfloat16)


@able
def test_a_packed_model_answers_as_before() -> None:
    model = tiny("qwen2").bfloat16()
    with torch.no_grad():
        right = model(input_ids=IDS).logits
        assert pack(model) == 3 * 7 + 1
        torch.testing.assert_close(model(input_ids=IDS).logits, right, atol=0.05, rtol=0.05)
    assert slots_refusal(model) is None
    assert pack(model) == 0


@able
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(32,), (5, 32), (1, 7, 32), (0, 32)])
def test_a_layer_takes_what_it_took(shape: tuple[int, ...], bias: bool) -> None:
    layer = linear(bias=bias)
    packed = PackedLinear(layer)
    given = torch.randn(shape).bfloat16()
    with torch.inference_mode():
        torch.testing.assert_close(packed(given), layer(given), atol=0.02, rtol=0.02)
        assert torch.equal(packed.weight, layer.weight)


@able
def test_only_plain_layers_are_packed() -> None:
    class Other(nn.Linear):
        """A layer of somebody's own, such as a quantised one."""

    hooked = linear()
    hooked.register_forward_hook(lambda *_: None)
    layers = [Other(32, 48, dtype=torch.bfloat16), hooked, nn.Linear(32, 48), linear()]
    model = nn.Sequential(*layers)
    assert pack(model) == 1
    assert [type(layer) for layer in model] == [Other, nn.Linear, nn.Linear, PackedLinear]


def test_elsewhere_nothing_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_able", lambda: False)
    model = nn.Sequential(linear())
    assert pack(model) == 0
    assert type(model[0]) is nn.Linear
