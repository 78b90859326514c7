"""`model.pruned`: a network with narrower MLPs."""

from itertools import pairwise
from typing import Any

from wallclock.errors import Unavailable


def prune(network: Any, share: float) -> None:
    """Remove hidden units of every MLP: its two layers become narrower, no weight is only masked.

    Removed are those whose weights in the first layer have the smallest Euclidean norm. Raises
    `Unavailable` where no layer widens its input for the next one to narrow it.
    """
    import torch
    from torch.nn.utils import prune as utils

    ln_structured: Any = utils.ln_structured  # untyped in torch
    remove: Any = utils.remove
    layers = [module for module in network.modules() if isinstance(module, torch.nn.Linear)]
    mlps = [
        (first, second)
        for first, second in pairwise(layers)
        if first.in_features < first.out_features == second.in_features
    ]
    if not mlps:
        raise Unavailable(f"model.pruned={share:g}: a {network.config.model_type} has no MLP")
    for first, second in mlps:
        ln_structured(first, "weight", amount=share, n=2, dim=0)
        kept = dict(first.named_buffers())["weight_mask"].bool().all(dim=1)
        remove(first, "weight")
        for layer, name, index in (
            (first, "weight", (kept,)),
            (first, "bias", (kept,)),
            (second, "weight", (slice(None), kept)),
        ):
            if (values := getattr(layer, name)) is not None:
                setattr(layer, name, torch.nn.Parameter(values.detach()[index].clone()))
        first.out_features = second.in_features = int(kept.sum())
