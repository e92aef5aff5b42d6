"""Hand our weights to torch's own modules, for the tests that compare the two."""

import torch
from torch import nn


def copy_weights(ours: nn.Module, theirs: nn.Module) -> None:
    """Both list the same tensors in the same order; torch keeps w_q, w_k and w_v in one."""
    values = iter(ours.parameters())
    with torch.no_grad():
        for name, target in theirs.named_parameters():
            if name.endswith("in_proj_weight"):
                w_q, b_q, w_k, b_k, w_v, b_v = (next(values) for _ in range(6))
                target.copy_(torch.cat([w_q, w_k, w_v]))
            elif name.endswith("in_proj_bias"):
                target.copy_(torch.cat([b_q, b_k, b_v]))
            else:
                target.copy_(next(values))
    assert next(values, None) is None
