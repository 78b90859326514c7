"""What an item may be, what travels with it, and what the images come out as."""

import gc
import multiprocessing
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import wallclock
from tests import making
from tests.threaded_server import FileHandler, ThreadedServer
from wallclock import Augment, Output, Workers, open_images
from wallclock.errors import ImageError, UserError
from wallclock.stages import normalize

DATA = making.jpeg(48, 40)
FILES = [making.jpeg(48, 40, seed) for seed in range(9)]


def load_one(item: Any, size: Any = 16, **options: Any) -> wallclock.Batch:
    with open_images([item], size, **options) as batches:
        (batch,) = batches
    assert not batch.failures, batch.failures
    return batch


def test_labels_and_items_travel_along(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(DATA)
    items: list[Any] = [
        {"image": DATA, "label": 3, "id": "mine", "note": "x"},
        (str(path), 7),
        DATA[:-60],
        ("named", DATA),
        {"path": str(path)},
        {"image": {"bytes": DATA, "path": None}, "label": 0},
        path,
    ]
    with open_images(items, 16) as batches:
        (batch,) = batches
    assert batch.ids == ["mine", str(path), "named", str(path), "5", str(path)]
    assert batch.labels == [3, 7, None, None, 0, None]
    assert list(batch.items) == [items[at] for at in (0, 1, 3, 4, 5, 6)]
    assert [failure["id"] for failure in batch.failures] == ["2"]
    for image in batch.images[1:]:
        np.testing.assert_array_equal(image, batch.images[0])


def test_labels_of_processes_and_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "b.jpg").write_bytes(DATA)
    (tmp_path / "a.jpg").write_bytes(DATA)
    with open_images(tmp_path, 16) as batches:
        assert list(next(batches).items) == ["a.jpg", "b.jpg"]
    pairs = [({"bytes": data}, number) for number, data in enumerate(FILES)]
    with open_images(pairs, 16, 2, workers=Workers(processes=2)) as batches:
        assert [label for batch in batches for label in batch.labels] == list(range(9))


@pytest.fixture
def rows() -> Any:
    """A dataset of Hugging Face, its images as bytes."""
    datasets = pytest.importorskip("datasets")
    columns = {"img": [{"bytes": data, "path": None} for data in FILES], "label": [*range(9)]}
    features = datasets.Features({"img": datasets.Image(), "label": datasets.Value("int64")})
    return datasets.Dataset.from_dict(columns, features=features)


def test_a_dataset_of_hugging_face(rows: Any) -> None:
    """Its images stay undecoded until a worker has them."""
    expected = [load_one(data).images[0] for data in FILES]
    backwards = rows.select(range(8, -1, -1))
    for items, step in ((rows, 1), (rows.to_iterable_dataset(), 1), (backwards, -1)):
        with open_images(items, 16, 9) as batches:
            (batch,) = batches
        assert batch.labels == [*range(9)][::step]
        np.testing.assert_array_equal(batch.images, expected[::step])


def test_a_transform_of_a_dataset_takes_decoded_images(rows: Any) -> None:
    def turn(columns: Any) -> Any:
        turned = [image.transpose(Image.Transpose.ROTATE_180) for image in columns["img"]]
        return {**columns, "img": turned}

    with open_images(rows.with_transform(turn), (40, 48)) as batches:
        turned = next(batches).images.astype(int)
    plain = np.stack([load_one(data, (40, 48)).images[0] for data in FILES])
    assert np.abs(turned - plain[:, ::-1, ::-1]).max() <= 3


def test_a_shuffled_stream_of_a_dataset_knows_its_epoch(rows: Any) -> None:
    stream = rows.to_iterable_dataset().shuffle(seed=1, buffer_size=9)
    with open_images(stream, 16, 9, epochs=2) as batches:
        first, second = (batch.labels for batch in batches)
        assert sorted(first) == sorted(second) == [*range(9)]
        assert first != second
        batches.set_epoch(0)
        assert next(iter(batches)).labels == first


def test_a_column_with_a_mode_has_it(rows: Any) -> None:
    datasets = pytest.importorskip("datasets")
    grey = rows.cast_column("img", datasets.Image(mode="L"))
    with open_images(grey, (40, 48)) as batches:
        images = next(batches).images.astype(int)
    expected = np.asarray(grey[0]["img"].convert("RGB")).astype(int)
    assert np.abs(images[0] - expected).max() <= 1


def test_all_splits_of_a_dataset_are_refused(rows: Any) -> None:
    datasets = pytest.importorskip("datasets")
    splits = datasets.DatasetDict({"train": rows, "test": rows})
    with pytest.raises(UserError, match=r"has splits: give one of 'train', 'test'"):
        open_images(splits)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("text", ["float32", "float16", "torch,float32", "torch,bfloat16"])
def test_normalized_images(text: str, processes: int) -> None:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    parsed = Output.parse(text)
    output = Output(parsed.dtype, parsed.framework, mean, std)
    plain = load_one(DATA).images[0]
    expected = normalize.make(mean, std)(plain)
    with open_images(FILES[:1] * 3, 16, 2, output=output, workers=Workers(2, processes)) as batches:
        image = next(batches).images[0]
    if parsed.framework == "torch":
        exact = torch.from_numpy(expected).to(getattr(torch, parsed.dtype))
        assert image.dtype == exact.dtype
        assert torch.equal(image, exact)
    else:
        assert image.dtype == parsed.dtype
        np.testing.assert_array_equal(image, expected.astype(parsed.dtype))


def test_a_view_keeps_a_batch_and_a_tensor_too() -> None:
    with open_images(FILES, 16, 1, workers=1) as batches:
        expected = [batch.images.copy() for batch in batches]
    with open_images(FILES, 16, 1, workers=1) as batches:
        row = next(batches).images[0, :8]
        tensor = torch.from_numpy(next(batches).images)
        exported = np.from_dlpack(next(batches).images)
        rest = [batch.images.copy() for batch in batches]
        np.testing.assert_array_equal(row, expected[0][0, :8])
        np.testing.assert_array_equal(tensor.numpy(), expected[1])
        np.testing.assert_array_equal(exported, expected[2])
        assert len(rest) == 6
    np.testing.assert_array_equal(row, expected[0][0, :8])


def test_memory_is_bounded_and_the_error_says_how_to_keep_more() -> None:
    with open_images(FILES * 3, 16, 1) as batches, pytest.raises(UserError, match=r"hold=18\)"):
        list(batches)
    with open_images(FILES * 3, 16, 1, output=Output(hold=30)) as batches:
        assert len(list(batches)) == 27
    with open_images(FILES * 3, 16, 1) as batches:
        assert len([batch.images.copy() for batch in batches]) == 27


def test_what_is_dropped_in_another_thread_comes_back() -> None:
    with open_images(FILES * 4, 16, 1, output=Output(hold=1)) as batches:
        for batch in batches:
            kept = [batch]
            del batch
            thread = threading.Thread(target=kept.clear)
            thread.start()
            thread.join()
    gc.collect()


def test_two_threads_share_an_iterator() -> None:
    ids: list[str] = []

    def take(batches: Any) -> None:
        # Not `for`, which would begin the next epoch in a thread that starts after the last batch.
        while (batch := next(batches, None)) is not None:
            ids.extend(batch.ids)

    with open_images(FILES * 20, 16, 3) as batches:
        threads = [threading.Thread(target=take, args=(batches,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(map(int, ids)) == list(range(180))


def test_its_repr_says_what_comes() -> None:
    assert repr(open_images(FILES, 16, 2, epochs=3)) == "<Images: 9 images, 15 batches of 2>"
    assert repr(open_images(iter(FILES), 16, 2)) == "<Images: a stream, batches of 2>"


def test_limits_of_the_augmentation() -> None:
    still = Augment(scale=(1.0, 1.0), ratio=(1.2, 1.2), flip=0.0, jitter=0.0)
    whole = load_one(DATA, (16, 16), augment=still).images
    assert np.abs(whole.astype(int) - load_one(DATA).images).max() <= 3
    always = Augment(scale=(1.0, 1.0), ratio=(1.2, 1.2), flip=1.0, jitter=0.0)
    flipped = load_one(DATA, augment=always).images
    np.testing.assert_array_equal(flipped, whole[:, :, ::-1])
    for wrong in ({"scale": (0.0, 1.0)}, {"scale": (0.5, 2.0)}, {"ratio": (2, 1)}, {"flip": 2}):
        with pytest.raises(UserError, match="augment"):
            Augment(**wrong)


def test_decode_is_the_loaders(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(making.jpeg(640, 480))
    for geometry in ({"size": 64}, {"preprocess": "shortest:64,crop:48x40,bicubic,rotate"}):
        with open_images([path], **geometry) as batches:
            expected = next(batches).images[0].copy()
        for image in (path, str(path), path.read_bytes()):
            np.testing.assert_array_equal(wallclock.decode(image, **geometry), expected)
    with pytest.raises(ImageError, match="No such file"):
        wallclock.decode(tmp_path / "none.jpg", 64)
    with pytest.raises(UserError, match="size='64'"):
        wallclock.decode(path, "64")  # type: ignore[arg-type]


def test_decode_of_urls() -> None:
    """Threads share the connections, and leave none behind; a fork makes its own."""

    class Handler(FileHandler):
        def answer(self) -> None:
            self.reply(200, {"Content-Length": str(len(DATA))}, DATA)

    with ThreadedServer(Handler) as server:
        expected, url = wallclock.decode(DATA, 24), f"{server.endpoint}/a.jpg"
        before = {*threading.enumerate()}
        for _ in range(5):
            with ThreadPoolExecutor(1) as other:
                image = other.submit(wallclock.decode, url, 24).result()
                np.testing.assert_array_equal(image, expected)
        left = {*threading.enumerate()} - before
        assert [thread.name for thread in left].count("transfers") <= 1
        with multiprocessing.get_context("fork").Pool(1) as forked:
            image = forked.apply_async(wallclock.decode, (url, 24)).get(timeout=60)
            np.testing.assert_array_equal(image, expected)


def test_a_loader_for_an_image_folder(tmp_path: Path) -> None:
    """In a DataLoader's workers, pickled."""
    paths = [tmp_path / f"{number}.jpg" for number in range(4)]
    for path, data in zip(paths, FILES, strict=False):
        path.write_bytes(data)
    load = pickle.loads(pickle.dumps(wallclock.loader_for(32)))
    image = load(paths[0])
    assert (image.mode, image.size) == ("RGB", (32, 32))
    np.testing.assert_array_equal(np.asarray(image), wallclock.decode(paths[0], 32))
    (tmp_path / "bad.jpg").write_bytes(FILES[0][:-60])
    with pytest.raises(OSError, match=r"bad\.jpg: decode: "):
        load(tmp_path / "bad.jpg")
