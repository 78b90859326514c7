"""A user's folder: any names, any contents, listed once, validated again only where it changed."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.corpora import folder, manifest
from harness.corpora.manifest import Manifest
from harness.spec import CorpusSpec
from tests import making
from wallclock.check import validate
from wallclock.errors import UserError
from wallclock.recipe import Limits

Prepare = Callable[..., Manifest]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    path = tmp_path / "images"
    path.mkdir()
    return path


@pytest.fixture
def prepare(tmp_path: Path, images: Path) -> Prepare:
    """Prepare the corpus and read the list that a worker would read."""

    def run(n: int | None = None, root: Path = images, **options: Any) -> Manifest:
        spec = CorpusSpec("folder", path=str(root), **options)
        prepared = folder.prepare(spec, n, tmp_path / "cache", lambda *_: None)
        listed = manifest.load(Path(prepared.manifest)).head(prepared.n)
        assert listed.digest() == prepared.digest
        return listed

    return run


@pytest.fixture
def validated(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The contents that were validated, in order."""
    seen: list[bytes] = []

    def count(data: bytes, limits: Limits) -> object:
        seen.append(data)
        return validate(data, limits)

    monkeypatch.setattr(folder, "validate", count)
    return seen


def fill(images: Path, *names: str) -> None:
    for seed, name in enumerate(names):
        path = images / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(making.jpeg(seed=seed))


def ids(listed: Manifest) -> list[str]:
    return [item.id for item in listed.items]


def reasons(listed: Manifest) -> dict[str, tuple[str, str]]:
    return {item.id: (item.failed_stage, item.failed_reason) for item in listed.failed}


def test_images_are_detected_by_content(images: Path, prepare: Prepare) -> None:
    expected = ["a/Z.JPG", "a/b/no-extension", "b.jpg", "photo.txt"]
    fill(images, *expected, ".hidden.jpg", ".cache/x.jpg")
    (images / "png-named.jpg").write_bytes(making.encode(making.picture(), "PNG"))
    (images / "text.jpg").write_text("not an image", encoding="utf-8")
    (images / "notes.txt").write_text("neither name nor content is an image's", encoding="utf-8")
    listed = prepare()
    assert ids(listed) == [*expected, "png-named.jpg", "text.jpg"]
    assert reasons(listed).keys() == {"text.jpg"}
    assert {item.id: item.format for item in listed.valid}["png-named.jpg"] == "png"
    item = listed.items[2]
    assert (item.width, item.height, item.bytes) == (64, 48, len((images / item.path).read_bytes()))
    assert (item.format, item.process, item.components) == ("jpeg", "baseline", 3)


def test_unreadable_files_have_a_reason(images: Path, prepare: Prepare) -> None:
    fill(images, "a.jpg", "z.jpg")
    (images / "linked.jpg").symlink_to("a.jpg")
    (images / "again").symlink_to(images)
    (images / "dangling.jpg").symlink_to("nowhere.jpg")
    (images / "loop.jpg").symlink_to("loop.jpg")
    (images / "empty.jpg").touch()
    os.mkfifo(images / "fifo.jpg")
    (images / "folder.jpg").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(images / "socket.jpg"))
        listed = prepare()
    assert [item.id for item in listed.valid] == ["a.jpg", "linked.jpg", "z.jpg"]
    assert reasons(listed) == {
        "dangling.jpg": ("read", "dangling link"),
        "empty.jpg": ("read", "empty file"),
        "fifo.jpg": ("read", "not a regular file"),
        "loop.jpg": ("read", "dangling link"),
        "socket.jpg": ("read", "not a regular file"),
    }


def test_unreadable_subfolder_has_a_row(
    images: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(images, "a.jpg", "closed/b.jpg")

    def deny(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(path: Any) -> Any:
            if os.fsdecode(path).rstrip("/").endswith("closed"):
                raise PermissionError(13, "Permission denied", os.fsdecode(path))
            return function(path)

        return call

    monkeypatch.setattr(os, "scandir", deny(os.scandir))
    monkeypatch.setattr(os, "listdir", deny(os.listdir))
    listed = prepare()
    assert [item.id for item in listed.valid] == ["a.jpg"]
    assert reasons(listed) == {"closed": ("read", "Permission denied")}


def test_failed_read_is_retried(
    images: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A permission that is granted later changes neither size nor modification time."""
    fill(images, "a.jpg", "b.jpg")
    read = Path.read_bytes

    def deny(path: Path) -> bytes:
        if path.name == "a.jpg":
            raise PermissionError(13, "Permission denied")
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", deny)
        assert reasons(prepare()) == {"a.jpg": ("read", "Permission denied")}
    assert reasons(prepare()) == {}


NAMES = [
    "ü ñ 写真 🙂.jpg",
    "n" * 251 + ".jpg",
    "a,b;'\"c.jpg",
    "line\nbreak.jpg",
    "-rf.jpg",
    "carriage\rreturn.jpg",
    "a..jpg.jpg",
    "%00.jpg",
    "${HOME}.jpg",
    "back\\slash.jpg",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_listed(images: Path, prepare: Prepare, name: str) -> None:
    fill(images, name, "zz.jpg")
    assert {item.id for item in prepare().valid} == {name, "zz.jpg"}


def test_names_that_are_not_utf8(tmp_path: Path, prepare: Prepare) -> None:
    """An id that every sink can store, in a folder whose own name is not UTF-8 either."""
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    fill(root, os.fsdecode(b"caf\xe9.jpg"))
    (item,) = prepare(root=root).valid
    assert item.id == "caf\\xe9.jpg"
    item.id.encode()
    assert (root / item.path).exists()


def test_n_by_name_or_by_rank(images: Path, prepare: Prepare) -> None:
    fill(images, *(f"{number:02}.jpg" for number in range(30)))
    assert ids(prepare(7)) == [f"{number:02}.jpg" for number in range(7)]
    samples = {n: ids(prepare(n, sample=True)) for n in (5, 10, 30)}
    assert samples[5] == samples[10][:5] == samples[30][:5]
    assert samples[30] != sorted(samples[30])
    assert ids(prepare(30, sample=True, seed=1)) != samples[30]


def test_only_changed_files_are_read_again(
    images: Path, prepare: Prepare, validated: list[bytes]
) -> None:
    fill(images, "a.jpg", "b.jpg", "c.jpg")
    (images / "d.jpg").write_bytes(making.jpeg()[:-40])
    before = sorted(images.rglob("*"))
    first = prepare()
    assert sorted(images.rglob("*")) == before, "the user's folder is not written"
    assert len(validated) == 4
    assert ids(prepare(n=1)) == ["a.jpg"]
    assert prepare() == first, "a smaller n forgets nothing"
    assert len(validated) == 4
    data = making.jpeg(seed=99)
    (images / "b.jpg").write_bytes(data)
    second = prepare()
    assert validated[4:] == [data]
    assert second.digest() != first.digest()
    assert ids(second) == ids(first)


def test_other_limits_are_another_list(images: Path, prepare: Prepare) -> None:
    fill(images, "a.jpg")
    (images / "b.jpg").write_bytes(making.jpeg(300, 300))
    assert reasons(prepare()) == {}
    assert "over the limit" in reasons(prepare(limits=Limits(max_pixels=50_000)))["b.jpg"][1]
    few = Limits(max_bytes=len(making.jpeg()))
    assert reasons(prepare(limits=few))["b.jpg"][0] == "read"


def test_no_image_is_one_line(images: Path, prepare: Prepare, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no image under"):
        prepare()
    for name in ("a.jpg", "b.jpg"):
        (images / name).write_bytes(making.jpeg()[:100])
    line = r"none of the 2 images under .* a\.jpg: .*cut off"
    with pytest.raises(UserError, match=line) as caught:
        prepare()
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="does not exist"):
        prepare(root=tmp_path / "missing")
    with pytest.raises(UserError, match="is not a folder"):
        prepare(root=images / "a.jpg")
    with pytest.raises(UserError, match=r"add corpus\.path="):
        folder.prepare(CorpusSpec("folder"), None, tmp_path / "cache", lambda *_: None)
