"""What would help a model: each remedy where it applies, and what trying it says."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import making
from tests.wallclock.trace.programs import trace, write
from wallclock import machine
from wallclock.trace import command
from wallclock.trace.inside.model_trial import keeps_graphs
from wallclock.trace.inside.models import REMEDIES, Pass
from wallclock.trace.page import Findings

PROGRAM = """
import contextlib, functools, sys
import torch
from PIL import Image

cores = len(__import__("os").sched_getaffinity(0))
torch.set_num_threads(cores)
width = int(sys.argv[1])  # a narrow model is of four passes, others of 256 images

@functools.cache
def photo(index):
    image = Image.open("photo.jpg").convert("RGB").resize((224, 224))
    data = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return data.view(3, 224, 224).float()

class Net(torch.nn.Module):
    def __init__(self, drop=0.0):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, width, 16, 16)
        layer = torch.nn.TransformerEncoderLayer(width, 2, 2 * width, drop, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    def forward(self, images):
        return self.layers(self.patches(images).flatten(2).transpose(1, 2)).mean(1)

class Photos(torch.utils.data.Dataset):
    def __len__(self):
        return 16 * 16
    def __init__(self, busy):
        self.busy = busy
    def __getitem__(self, index):
        if self.busy:
            Image.open("photo.jpg").resize((2000, 2000))
        return photo(index % 2)

def take(model, batch=16, context=torch.inference_mode, threads=cores, workers=0):
    torch.set_num_threads(threads)
    loader = torch.utils.data.DataLoader(Photos(workers > 0), batch, num_workers=workers)
    for index, images in enumerate(loader):
        with context():
            model(images)
        if index == 3 and width < 64 or index * batch >= 240:
            break

def case(name):
    kind = type(name, (Net,), {})
    if name == "Gradients":
        take(kind().eval(), context=contextlib.nullcontext)
    elif name == "Training":
        take(kind(0.1))
    elif name == "Parts":
        model = kind(0.1)
        for part in model.children():
            part.eval()
        take(model)
    elif name == "Single":
        take(kind().eval(), batch=1)
    elif name == "Threads":
        take(kind().eval(), threads=1)
    elif name == "Turns":
        take(kind().eval(), threads=max(2, cores), workers=max(2, cores))
    elif name == "Plain":
        take(kind().eval())

for name in sys.argv[2:]:
    case(name)
"""
#: Case → the remedy that is named first. `Plain` has every fault but FP32 mended; all parts of
#: `Parts` that could train do not.
FIRST = {
    "Gradients": "gradients",
    "Training": "training mode",
    "Single": "batch",
    "Threads": "threads",
    "Plain": "bf16",
    "Parts": "bf16",
    "Turns": "turns",
}
#: Where the machine has what they need; cores that take turns only sometimes show it.
CASES = [
    name
    for name in FIRST
    if (FIRST[name] != "bf16" or machine.computes_bf16())
    and (name not in ("Threads", "Turns") or machine.usable_cores() > 1)
]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "photo.jpg").write_bytes(making.jpeg(64, 48))
    return write(tmp_path, PROGRAM)


def test_each_remedy_is_the_first_of_its_program(program: Path) -> None:
    names = [name for name in CASES if name != "Turns"]
    done = trace(program, "16", *names, cwd=program.parent)
    assert done.stderr == ""
    told = {use.name: use.settings for use in done.trace.uses}
    for name in names:
        first = next(key for key in told[f"{name}.forward"] if key not in ("calls", "line"))
        assert first == FIRST[name]
        assert told[f"{name}.forward"]["line"].startswith("program.py:")


def test_ranks_divide_the_cores(program: Path) -> None:
    env = {"LOCAL_WORLD_SIZE": str(machine.usable_cores())}
    done = trace(program, "16", "Threads", cwd=program.parent, env=env)
    (told,) = [use.settings for use in done.trace.uses if use.name == "Threads.forward"][-1:]
    assert "threads" not in told


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_verdict_names_it(program: Path, name: str) -> None:
    said = Findings(trace(program, "192", name, cwd=program.parent).trace)
    first = said.helps[0]
    assert first.name == FIRST[name]
    assert said.verdict.cause in ("model", "waiting")
    if said.verdict.cause == "model":
        assert first.change in said.verdict.text
        assert said.verdict.line == first.line


@pytest.mark.slow
def test_trying_it(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the program: its time, output and counters are as without."""
    monkeypatch.chdir(program.parent)
    monkeypatch.setenv("PYTHONPATH", "")
    assert command.trace(["--try", "--json", "trace.json", "program.py", "64", "Gradients"]) == 0
    written = json.loads(Path("trace.json").read_text(encoding="utf-8"))
    tried = {each["name"]: each["tried"] for each in written["model"]}
    assert tried.keys() >= {"gradients"}
    gain = tried["gradients"]["model"]
    assert 0 < gain["low"] <= gain["speedup"] <= gain["high"]
    assert tried["gradients"]["cosine"] == pytest.approx(1, abs=1e-6)
    assert sum(written["main"].values()) == pytest.approx(
        written["wall_s"] - written["start_up_s"] - written["exit_s"], rel=0.01
    )
    assert written["try"]


PASS = Pass(
    module=None,
    args=(),
    kwargs={},
    images=16,
    device="cpu",
    dtype="torch.float16",
    records=False,
    is_inference=False,
    autocast=None,
    threads=2,
    workers=0,
    cores=2,
    disturbed=1.0,
    trains=False,
    grew=0.0,
)


@pytest.mark.parametrize(
    ("changed", "name", "applies"),
    [
        ({"workers": 2, "disturbed": 2.0}, "turns", True),
        ({"workers": 2, "disturbed": 1.1}, "turns", False),
        ({"workers": 2, "disturbed": 2.0, "cores": 8}, "turns", False),
        ({"workers": 2, "disturbed": 2.0, "device": "cuda"}, "turns", False),
        ({"threads": 1}, "threads", True),
        ({"threads": 1, "workers": 1}, "threads", False),
        ({"records": True}, "gradients", True),
        ({"records": True, "trains": True}, "gradients", False),
        ({"images": 1}, "batch", True),
        ({"images": 0}, "batch", False),
        ({"images": 1, "trains": True}, "batch", False),
        ({"dtype": "torch.float32", "autocast": "torch.bfloat16"}, "bf16", False),
    ],
)
def test_where_a_remedy_applies(changed: dict[str, Any], name: str, applies: bool) -> None:
    (remedy,) = [remedy for remedy in REMEDIES if remedy.name == name]
    assert remedy.applies(PASS._replace(**changed)) is applies


@pytest.mark.parametrize("keeps", [True, False])
def test_a_program_that_keeps_graphs_is_known_by_its_memory(keeps: bool) -> None:
    layer = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)])
    images = torch.zeros(8192, 512)  # each layer's result has 16 MiB
    grew = 8 * 2.0**24 if keeps else 2.0**24
    seen = PASS._replace(module=layer, args=(images,), records=True, grew=grew)
    assert keeps_graphs(seen) is keeps
