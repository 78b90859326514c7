"""docs/service.md: its code runs as it is written, its walk ends in a callback."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import making
from tests.conftest import ROOT
from tests.wallclock.service.test_examples import results
from wallclock.service.callbacks import SECRET, SIGNATURE, sign

TEXT = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.slow
def test_the_module_runs_and_is_short() -> None:
    source, *_ = blocks("python")
    assert len(source.splitlines()) <= 30
    names: dict[str, Any] = {}
    exec(source, names)
    module = names["Sharpness"](size=128)
    sharp = np.random.default_rng(0).integers(0, 255, (256, 256, 3), dtype=np.uint8)
    images = [making.encode(pixels) for pixels in (sharp, np.full_like(sharp, 90))]
    noisy, flat = results(module, *images)
    assert noisy["sharpness"] > 10 > flat["sharpness"]


def test_a_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, "secret")
    monkeypatch.setattr("time.time", lambda: 1000.0)
    names: dict[str, Any] = {}
    exec(blocks("python")[-1], names)
    headers = {SIGNATURE: sign("secret", "https://results.example.org/done?a=1", b"{}", 1000)}
    assert names["is_genuine"]("/done?a=1", headers, b"{}")
    assert not names["is_genuine"]("/done?a=1", headers, b"[]")
    assert not names["is_genuine"]("/done?a=2", headers, b"{}")


#: What may make another host of a receiver's origin, or of the request's own.
JOINTS = ["", "/", "//", "@", "/@", ".", ":80@", ":@", "\\", "/\\", "?@", "#@", "https://", "\t//"]
OTHERS = ["elsewhere.example", "results.example.org.elsewhere.example"]


@given(
    signed=st.sampled_from(OTHERS),
    path=st.sampled_from(["/done?a=1", "/", "/done"]),
    joint=st.sampled_from(JOINTS) | st.text(),
    host=st.sampled_from(OTHERS) | st.text(),
)
def test_no_receiver_takes_what_was_signed_for_another(
    signed: str, path: str, joint: str, host: str
) -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[-1], names)
    headers = {SIGNATURE: sign("secret", f"https://{signed}{path}", b"{}", 1000), "Host": host}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SECRET, "secret")
        patch.setattr("time.time", lambda: 1000.0)
        for target in (f"{joint}{path}", f"{joint}elsewhere.example{path}"):
            assert not names["is_genuine"](target, headers, b"{}")


@pytest.mark.slow
def test_by_hand(tmp_path: Path) -> None:
    """The shell block, with other ports, this Python, and a folder that there is."""
    (tmp_path / "a.jpg").write_bytes(making.jpeg(640, 480))
    (script,) = blocks("bash")
    with ExitStack() as stack:
        for port in ("5600", "5601", "5602", "5603"):
            free = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            script = script.replace(port, str(free.getsockname()[1]))
    script = script.replace("/path/to/images", str(tmp_path))
    script = script.replace('"$PWD/.venv/bin:$PATH"', f'"{Path(sys.executable).parent}:$PATH"')
    script = script.replace("make serve", f"make -o .venv/.ready PY={sys.executable} serve")
    path = os.pathsep.join((str(ROOT / "code"), str(ROOT)))
    shell = subprocess.Popen(
        ["bash", "-e", "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = shell.communicate(timeout=100)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    assert '"accepted":1' in out, out + err
    assert '"event":"stopped","not_returned":0' in err
