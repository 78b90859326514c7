"""Has torchvision and timm make their models with random weights: nothing is downloaded."""

import torch

torch.hub.load_state_dict_from_url = lambda *args, **kwargs: None
_load = torch.nn.Module.load_state_dict


def load_state_dict(self, state, *args, **kwargs):
    return _load(self, state, *args, **kwargs) if state else None


torch.nn.Module.load_state_dict = load_state_dict
