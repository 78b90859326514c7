"""Programs with torch under the trace: DataLoaders, models, training, compiled models.

torchvision and albumentations cannot be had here: modules of the same names stand in for them.
"""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import making
from tests.wallclock.trace.programs import Done, trace, write
from wallclock import machine, native
from wallclock.trace.inside import notes
from wallclock.trace.record import Function, by_stage

TORCHVISION = """
import torch

class Compose:
    def __init__(self, steps):
        self.steps = steps
    def __call__(self, image):
        for step in self.steps:
            image = step(image)
        return image

class ToTensor:
    def __call__(self, image):
        data = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return data.view(image.height, image.width, 3).permute(2, 0, 1) / 255

class Resize(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
    def forward(self, image):
        return image.resize(self.size)

class Normalize(torch.nn.Module):
    def forward(self, tensor):
        return (tensor - 0.5) / 0.25
"""

ALBUMENTATIONS = """
class BasicTransform:
    def __call__(self, *, image):
        return {"image": image}
class Normalize(BasicTransform):
    pass
class HorizontalFlip(BasicTransform):
    pass
"""

TRAIN = """
import inspect, multiprocessing, os, pickle, signal, sys, time
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.transforms import Compose, Normalize, Resize, ToTensor
from albumentations.core import transforms_interface as albumentations

class Photos(Dataset):
    def __init__(self):
        self.prepare = Compose(
            [torch.nn.Sequential(Resize((16, 16))), ToTensor(), Normalize()]
        )
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return self.prepare(Image.open(sys.argv[1]).convert("RGB")), index

class Killed(Photos):
    def __init__(self):
        super().__init__()
        self.received = multiprocessing.Value("i", 0)
    def __getitem__(self, index):
        size = Image.open(sys.argv[1]).convert("RGB").size
        if index == 5:
            # A thread of this worker sends its batches, and would die with it.
            while self.received.value < 2:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGKILL)
        return size

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten())
        self.head = torch.nn.Linear(4 * 14 * 14, 2)
    def forward(self, images):
        images = torch.nn.functional.interpolate(images, scale_factor=1.0)
        return self.head(self.body(images))

class Doubled(torch.nn.Module):
    def forward(self, images):
        return torch.nn.functional.interpolate(images, scale_factor=2.0, mode="nearest")

def collate(samples):
    return torch.stack([image for image, _ in samples]), torch.tensor([n for _, n in samples])

if __name__ == "__main__":
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for workers in (0, 2):
        loader = DataLoader(
            Photos(), batch_size=4, num_workers=workers, collate_fn=collate if workers else None
        )
        for images, numbers in loader:
            output = (compiled if workers else model)(images)
            torch.nn.functional.cross_entropy(output, numbers % 2).backward()
            optimizer.step()
    assert list(inspect.signature(model).parameters) == ["args", "kwargs"]
    assert pickle.loads(pickle.dumps(model)).head.out_features == 2
    example = torch.zeros(1, 3, 16, 16)
    assert torch.equal(torch.jit.trace(model, example)(example), model(example))
    torch.nn.functional.interpolate(example, size=(8, 4))
    scripted = torch.jit.script(Doubled())
    assert scripted(example).shape == (1, 3, 32, 32)
    assert torch.fx.symbolic_trace(Doubled())(example).shape == (1, 3, 32, 32)
    for transform in (albumentations.Normalize(), albumentations.HorizontalFlip()):
        assert transform(image=5) == {"image": 5}
    killed = Killed()
    try:
        for _ in DataLoader(killed, batch_size=2, num_workers=1, collate_fn=len):
            killed.received.value += 1
    except RuntimeError as error:
        print(type(error).__name__)
    torch.save(model.state_dict(), "weights.pt")
"""


ON_A_GPU = """
import torch

model = torch.nn.Linear(512, 512).cuda()
with torch.inference_mode():
    for _ in range(5):
        model(torch.zeros(8, 512).to("cuda")).cpu()
"""


@pytest.mark.cuda
def test_a_program_on_a_gpu(tmp_path: Path) -> None:
    done = trace(write(tmp_path, ON_A_GPU), cwd=tmp_path)
    assert done.trace.exit_code == 0, done.stderr
    assert done.main()[Function("forward", "Linear.forward")].calls == 5
    assert done.trace.device == machine.gpus()[0]["name"]
    assert (done.trace.device_busy_s or 0.0) > 0


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("training")
    for package in ("torchvision/transforms", "albumentations/core"):
        (folder / package).mkdir(parents=True)
    write(folder / "torchvision" / "transforms", TORCHVISION, "transforms.py")
    write(folder / "albumentations" / "core", ALBUMENTATIONS, "transforms_interface.py")
    (folder / "photo.jpg").write_bytes(making.jpeg(64, 48))
    done = trace(write(folder, TRAIN), "photo.jpg", cwd=folder)
    assert done.stderr == ""
    assert done.trace.exit_code == 0
    return done


def test_images_of_all_processes(training: Done) -> None:
    assert training.images("decode") == 16 + 6
    # By Pillow, not by the class around it; and one by interpolate.
    assert training.images("resize") == 17
    assert training.images("assemble") == 8, "of the loader without a function of its own"


def test_workers_and_their_consumer(training: Done) -> None:
    roles = [process.role for process in training.trace.processes]
    assert roles == ["main", "worker", "worker", "worker"]
    for process in training.trace.processes[1:3]:
        (thread,) = [thread for thread in process.threads if thread.is_main]
        stages = by_stage([thread])
        assert stages.keys() >= {"read", "decode", "resize", "normalize"}
        assert stages["decode"].images == 4
        assert "forward" not in stages
    assert training.calls("send", "multiprocessing.reduction.ForkingPickler.dumps") >= 2
    assert training.calls("assemble", "torch.utils.data._utils.collate.default_collate") >= 2


def test_settings_of_the_loaders(training: Done) -> None:
    uses = [loader for loader in training.trace.uses if "DataLoader" in loader.name]
    assert [(use.settings["num_workers"], use.settings["batch_size"]) for use in uses] == [
        ("0", "4"),
        ("2", "4"),
        ("1", "2"),
    ]
    assert uses[1].settings["prefetch_factor"] == "2"
    assert uses[0].settings["pin_memory"] == "False"
    assert all(re.fullmatch(r"\w+\.py:\d+", use.settings["line"]) for use in uses)


def test_images_that_become_floats_before_the_resize(tmp_path: Path) -> None:
    source = """
    import torch
    images = torch.zeros(1, 3, 40, 60, dtype=torch.uint8)
    for tensor in (images, images.float()):
        torch.nn.functional.interpolate(tensor, size=(8, 8))
    """
    kinds = trace(write(tmp_path, source), cwd=tmp_path).trace.kinds("resize")
    assert {kind.format for kind in kinds} == {"", "float32"}


def test_only_the_outermost_module_is_the_model(training: Done) -> None:
    main = training.main()
    plain = main[Function("forward", "Model.forward")]
    compiled = main[Function("forward", "OptimizedModule.forward")]
    assert (compiled.calls, compiled.images) == (2, 8)
    assert plain.calls >= 3
    assert plain.images >= 9
    names = {function.name for function in main if function.stage == "forward"}
    assert not names & {"Conv2d.forward", "Linear.forward", "Sequential.forward", "Resize.forward"}


def test_training(training: Done) -> None:
    main = training.main()
    assert main[Function("backward", "torch.autograd.backward")].calls == 4
    assert main[Function("optimizer", "SGD.step")].calls == 4
    # Once by the program; a pickled model saves its four tensors by the same function.
    assert main[Function("serialize", "torch.save")].calls == 5


def test_transforms_by_the_names_of_their_classes(training: Done) -> None:
    name = "torchvision.transforms"
    assert training.calls("resize", f"{name}.Resize") == 16
    assert training.calls("normalize", f"{name}.Normalize") == 16
    assert training.calls("transform", f"{name}.transforms.ToTensor") == 16
    assert (
        training.calls("transform", "albumentations.core.transforms_interface.BasicTransform") == 2
    )


def test_interpolate_counts_outside_models_alone(training: Done) -> None:
    name = "torch.nn.functional.interpolate"
    assert training.calls("resize", name) == 2  # one of torch.fx, which has no sizes
    (kind,) = [kind for kind in training.trace.images if kind.function.name == name]
    assert (kind.source, kind.made, kind.count) == ((16, 16), (4, 8), 1)


def test_a_worker_that_is_killed(training: Done) -> None:
    """It decodes six images, and is killed in the last one."""
    worker = training.trace.processes[-1]
    assert by_stage(worker.threads)["decode"].images == 6
    assert training.stdout == "RuntimeError\n"


HAS_NATIVE = native.find() is not None
PROGRAM = """
import functools, http.server, io, json, os, sys, threading, urllib.request
import cv2, numpy, simplejpeg

data = open("photo.jpg", "rb").read()
array = cv2.imdecode(numpy.frombuffer(data, numpy.uint8), cv2.IMREAD_COLOR)
for name in "ab":
    cv2.imdecode(numpy.fromfile(name, numpy.uint8), cv2.IMREAD_COLOR)
cv2.resize(array, (10, 20))
assert cv2.imread("photo.jpg", cv2.IMREAD_REDUCED_COLOR_2).shape == (150, 200, 3)
assert cv2.imread(os.devnull) is None
simplejpeg.decode_jpeg(data, min_width=100, min_height=75, min_factor=1)

class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
assert urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/photo.jpg").read() == data
server.shutdown()

numpy.save("vectors.npy", numpy.zeros(3))
json.dump({}, io.StringIO())
import wallclock
with wallclock.open_images("images", size=32, batch=2) as batches:
    assert sum(len(batch.ids) for batch in batches) == 3
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "photo.jpg").write_bytes(making.jpeg(400, 300))
    (folder / "a").write_bytes(making.jpeg(40, 30, progressive=True))
    (folder / "b").write_bytes(making.encode(making.picture(40, 30), "PNG"))
    (folder / "images").mkdir()
    for number in range(3):
        (folder / "images" / f"{number}.jpg").write_bytes(making.jpeg(64, 48, seed=number))
    done = trace(write(folder, PROGRAM), cwd=folder)
    assert done.trace.exit_code == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("stage", "name", "calls", "images"),
    [
        ("decode", "cv2.imdecode", 3, 3),
        ("decode", "cv2.imread", 2, 1),
        ("decode", "simplejpeg.decode_jpeg", 1 if HAS_NATIVE else 4, 1 if HAS_NATIVE else 4),
        ("decode", "wallclock decode", 3 if HAS_NATIVE else 0, 3 if HAS_NATIVE else 0),
        ("resize", "cv2.resize", 1, 1),
        ("read", "http.client.HTTPResponse.read", 1, 1),
        ("read", "wallclock read", 3, 3),
        ("serialize", "numpy.save", 1, 0),
        ("serialize", "json.dump", 1, 0),
    ],
)
def test_calls_and_images(stage: str, name: str, calls: int, images: int, libraries: Done) -> None:
    assert libraries.calls(stage, name) == calls
    threads = [thread for process in libraries.trace.processes for thread in process.threads]
    spent = [
        entry
        for thread in threads
        for function, entry in thread.spent.items()
        if (function.stage, function.name) == (stage, name)
    ]
    assert sum(entry.images for entry in spent) == images


def test_sizes(libraries: Done) -> None:
    sizes = {
        (kind.function.name, kind.format, kind.source, kind.made): (kind.count, kind.n_bytes)
        for kind in libraries.trace.images
    }
    n_bytes = len(making.jpeg(400, 300))
    full = (400, 300)
    assert sizes["cv2.imdecode", "JPEG", full, full] == (1, n_bytes)
    small = (40, 30)
    assert sizes["cv2.imdecode", "progressive JPEG", small, small][0] == 1
    assert sizes["cv2.imdecode", "PNG", small, small][0] == 1
    assert sizes["cv2.imread", "JPEG", full, (200, 150)] == (1, n_bytes)
    assert sizes["simplejpeg.decode_jpeg", "JPEG", full, (100, 75)] == (1, n_bytes)
    assert sizes["cv2.resize", "", full, (10, 20)] == (1, 0)


def test_the_loaders_threads_are_workers(libraries: Done) -> None:
    assert len(libraries.trace.threads(of_workers=True)) >= 1
    assert libraries.calls("wait", "wallclock.Images") == 3  # two batches, and the end


@given(st.binary(max_size=60), st.integers(0, 200))
def test_no_header_raises(junk: bytes, cut: int) -> None:
    """Nor does one that goes on for ever."""
    notes.read_header(junk)
    notes.read_header(b"\xff\xd8\xff" + junk)
    notes.read_header(making.jpeg(16, 16)[:cut] + junk)
