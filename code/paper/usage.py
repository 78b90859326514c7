"""The help of `code/main.py`, on two screens; and parsers whose mistakes are one line."""

import argparse
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from experiments import contents

_HEAD = """\
wallclock: where an image-embedding job spends its wall time

python code/main.py [--quick] [--n N] [--experiment a,b|all] [key=value ...]

  --quick               a smoke test: minutes on a CPU, 5,000 images on a GPU
  --n N                 N images at most, per measurement
  --experiment a,b|all  which experiments; all: those of the paper
  key=value             any setting; corpus=folder corpus.path=DIR takes your images
  --cfg job             show every setting and stop
  --multirun            sweep: several values, separated by commas
  --version
"""
#: What is chosen by `group=name`; an experiment is chosen by its flag.
_CHOICES = ("corpus", "model", "profile", "recipe")


class OneLineParser(argparse.ArgumentParser):
    """A parser that answers a mistake in one line: the cause, and where the fix is."""

    def error(self, message: str) -> NoReturn:
        """End with status 2."""
        self.exit(2, f"wallclock: {message}; {self.prog} --help lists what there is\n")


def usage(conf: Path) -> str:
    """The text; `conf`: the folder of the configuration's groups."""
    width = min(100, shutil.get_terminal_size().columns)
    lines = [_HEAD, "choices, group=name:"]
    for group in _CHOICES:
        names = ", ".join(sorted(path.stem for path in (conf / group).glob("*.yaml")))
        lines.append(f"  {group:<9} {names}")
    lines += ["", "experiments of the paper, in running order:"]
    lines += _described(contents.ORDER, width)
    lines += ["", "experiments on request:", *_described(contents.ON_REQUEST, width)]
    return "\n".join(lines)


def _described(names: Sequence[str], width: int) -> Iterable[str]:
    """A line for each experiment: its name and the first sentence of its module."""
    for name in names:
        first = (contents.load(name).__doc__ or "").strip().splitlines()[0]
        yield f"  {name:<14} {textwrap.shorten(first, width - 17, placeholder=' …')}"
