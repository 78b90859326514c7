"""transformers, run over a model's files, which are from outside: quiet, in bounds, in one line."""

import math
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from wallclock.errors import Unavailable, UserError, first_line, import_extra, reason_of

#: Layers and their parts; the largest networks of images have some thousands.
_MOST_MODULES = 20_000


@contextmanager
def quiet(what: str) -> Iterator[Any]:
    """transformers, without its warnings and bars while the block runs. `what`: needs it."""
    transformers = import_extra("transformers", what, "embed")
    logging = transformers.utils.logging
    verbosity, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):  # torch's, of layers without a weight
            yield transformers
    finally:
        logging.set_verbosity(verbosity)
        if has_bar:
            logging.enable_progress_bar()


@contextmanager
def library(where: object, fix: str) -> Iterator[Any]:
    """transformers, quiet, about one file or model; `fix`: what to do. Raises UserError."""
    try:
        with quiet(f"model {where}") as transformers:
            yield transformers
    except UserError:
        raise
    except ImportError as error:
        raise Unavailable(
            f"{where} needs a library that is not installed: {first_line(error)} For timm's models "
            "type `.venv/bin/pip install timm` (it brings torchvision: take the build that fits "
            "this torch)"
        ) from error
    except Exception as error:  # of what a file may say there is no end
        raise UserError(f"cannot load {where}: {reason_of(error).rstrip('.')}; {fix}") from error


@contextmanager
def bounded(most_numbers: float = math.inf) -> Iterator[None]:
    """Build a network without memory for weights; ValueError: over `most_numbers`, or layers."""
    import torch
    from torch.nn.modules import module as hooks

    n_modules = n_numbers = 0

    def count(parent: Any, name: str, child: Any) -> None:
        nonlocal n_modules, n_numbers
        if isinstance(child, torch.nn.Module):
            n_modules += 1
        elif child is not None and child.is_meta:  # what is read from files comes later
            n_numbers += child.numel()
        if n_modules > _MOST_MODULES:
            raise ValueError(f"its network has more than {_MOST_MODULES:,} layers")
        if n_numbers > most_numbers:
            layer = type(parent).__name__
            raise ValueError(f"its network has more weights than its files, as a {layer}.{name}")

    with ExitStack() as stack:
        for register in (
            hooks.register_module_module_registration_hook,
            hooks.register_module_parameter_registration_hook,
            hooks.register_module_buffer_registration_hook,
        ):
            stack.callback(register(count).remove)
        yield
