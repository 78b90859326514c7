"""Python programs that tests run in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Where a program finds the packages.
PATH = {"PYTHONPATH": f"{ROOT / 'code'}{os.pathsep}{ROOT}"}


def run_python(
    *words: object, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run `python words…` to its end; options are those of subprocess.run."""
    kept = {"capture_output": True, "text": True, "timeout": 100, "check": False, **options}
    environment = {**os.environ, **PATH, **(env or {})}
    return subprocess.run([sys.executable, *map(str, words)], env=environment, **kept)


def start_python(
    *words: object, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start `python words…` in a session of its own; options are those of subprocess.Popen."""
    kept = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    environment = {**os.environ, **PATH, **(env or {})}
    command = [sys.executable, *map(str, words)]
    return subprocess.Popen(command, env=environment, start_new_session=True, **kept)
