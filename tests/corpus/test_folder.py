"""A folder of one's own: any names, any contents, listed once, checked again only where it changed."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import making
from wallclock.corpus import folder, manifest
from wallclock.corpus.manifest import Manifest
from wallclock.corpus.validate import validate
from wallclock.errors import UserError
from wallclock.spec import CorpusSpec, Limits

Prepare = Callable[..., Manifest]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    made = tmp_path / "images"
    made.mkdir()
    return made


@pytest.fixture
def prepare(tmp_path: Path, images: Path) -> Prepare:
    """Prepare the corpus and read the list that a worker would read."""

    def run(n: int | None = None, root: Path = images, limits: Limits | None = None) -> Manifest:
        spec = CorpusSpec("folder", path=str(root), limits=limits or Limits())
        made = folder.prepare(spec, n, tmp_path / "cache", lambda done, total, what: None)
        found = manifest.load(Path(made.manifest)).first(made.n)
        assert found.digest() == made.digest
        return found

    return run


@pytest.fixture
def vetted(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The contents that were vetted, in order."""
    seen: list[bytes] = []
    real = validate

    def count(data: bytes, limits: Limits) -> object:
        seen.append(data)
        return real(data, limits)

    monkeypatch.setattr(folder, "validate", count)
    return seen


def fill(images: Path, *names: str) -> None:
    for seed, name in enumerate(names):
        path = images / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(making.jpeg(seed=seed))


def reasons(found: Manifest) -> dict[str, tuple[str, str]]:
    return {item.id: (item.failed_stage, item.failed_reason) for item in found.failed}


def test_images_are_told_by_content_and_listed_by_name(images: Path, prepare: Prepare) -> None:
    fill(images, "b.jpg", "a/Z.JPG", "a/b/no-extension", "photo.txt")
    (images / "png-named.jpg").write_bytes(making.encode(making.picture(), "PNG"))
    (images / "text.jpg").write_text("not an image", encoding="utf-8")
    (images / "notes.txt").write_text(
        "left out: neither its name nor its content says image", encoding="utf-8"
    )
    (images / ".hidden.jpg").write_bytes(making.jpeg())
    (images / ".cache").mkdir()
    (images / ".cache" / "x.jpg").write_bytes(making.jpeg())
    found = prepare()
    assert [item.id for item in found.items] == [
        *("a/Z.JPG", "a/b/no-extension", "b.jpg", "photo.txt", "png-named.jpg", "text.jpg")
    ]
    assert reasons(found).keys() == {"text.jpg"}
    assert {item.id: item.format for item in found.valid}["png-named.jpg"] == "png"


def test_a_row_says_what_the_file_is(images: Path, prepare: Prepare) -> None:
    data = making.jpeg(70, 50, progressive=True)
    (images / "a.jpg").write_bytes(data)
    (item,) = prepare().items
    assert (item.bytes, item.width, item.height) == (len(data), 70, 50)
    assert (item.format, item.process, item.components) == ("jpeg", "progressive", 3)
    assert (images / item.path).read_bytes() == data


def test_what_cannot_be_read_keeps_its_row_with_the_reason(images: Path, prepare: Prepare) -> None:
    fill(images, "a.jpg", "z.jpg")
    (images / "dangling.jpg").symlink_to("nowhere.jpg")
    (images / "loop.jpg").symlink_to("loop.jpg")
    (images / "empty.jpg").touch()
    os.mkfifo(images / "fifo.jpg")
    (images / "folder.jpg").mkdir()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(images / "socket.jpg"))
        found = prepare()
    assert [item.id for item in found.valid] == ["a.jpg", "z.jpg"]
    assert reasons(found) == {
        "dangling.jpg": ("read", "dangling link"),
        "empty.jpg": ("read", "empty file"),
        "fifo.jpg": ("read", "not a regular file"),
        "loop.jpg": ("read", "dangling link"),
        "socket.jpg": ("read", "not a regular file"),
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(images: Path, prepare: Prepare) -> None:
    fill(images, "a.jpg", "b.jpg")
    (images / "a.jpg").chmod(0)
    assert reasons(prepare()) == {"a.jpg": ("read", "Permission denied")}


def test_a_subfolder_that_cannot_be_listed_has_a_row(
    images: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(images, "a.jpg", "closed/b.jpg")
    scan, names = os.scandir, os.listdir

    def deny(path: Any, what: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return what(path)

    monkeypatch.setattr(os, "scandir", lambda path: deny(path, scan))
    monkeypatch.setattr(os, "listdir", lambda path: deny(path, names))
    found = prepare()
    assert [item.id for item in found.valid] == ["a.jpg"]
    assert reasons(found) == {"closed": ("read", "Permission denied")}


def test_a_file_that_could_not_be_read_is_tried_again(
    images: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A permission that is granted later changes neither size nor modification time."""
    fill(images, "a.jpg", "b.jpg")
    real = Path.read_bytes

    def deny(path: Path) -> bytes:
        if path.name == "a.jpg":
            raise PermissionError(13, "Permission denied")
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", deny)
        assert reasons(prepare()) == {"a.jpg": ("read", "Permission denied")}
    assert reasons(prepare()) == {}


def test_a_link_to_a_folder_is_not_followed_round_and_round(images: Path, prepare: Prepare) -> None:
    fill(images, "a/b.jpg")
    (images / "a" / "again").symlink_to(images)
    (images / "linked.jpg").symlink_to("a/b.jpg")
    assert [item.id for item in prepare().valid] == ["a/b.jpg", "linked.jpg"]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "ü ñ 写真 🙂.jpg",
            "n" * 251 + ".jpg",
            "a,b;'\"c.jpg",
            "line\nbreak.jpg",
            "carriage\rreturn.jpg",
        ),
        *("a..jpg.jpg", "-rf.jpg", "%00.jpg", "${HOME}.jpg", "back\\slash.jpg"),
    ],
)
def test_any_name_will_do(images: Path, prepare: Prepare, name: str) -> None:
    fill(images, name, "zz.jpg")
    assert {item.id for item in prepare().valid} == {name, "zz.jpg"}


def test_names_that_are_not_utf8_get_ids_that_every_file_can_hold(
    images: Path, prepare: Prepare
) -> None:
    raw = os.fsencode(images) + b"/caf\xe9.jpg"
    with open(raw, "wb") as handle:
        handle.write(making.jpeg())
    (item,) = prepare().items
    assert item.valid
    assert item.id == "caf\\xe9.jpg"
    item.id.encode()
    assert (images / item.path).exists()


def test_a_folder_whose_own_name_is_not_utf8(tmp_path: Path, prepare: Prepare) -> None:
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    root.mkdir()
    fill(root, "a.jpg")
    found = prepare(root=root)
    assert (found.root / found.items[0].path).exists()


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(names=st.sets(st.sampled_from("abcdefgh"), min_size=1), n=st.integers(1, 9))
def test_n_takes_the_first_in_the_order_of_names(tmp_path: Path, names: set[str], n: int) -> None:
    root = tmp_path / "".join(sorted(names))
    for name in names:
        fill(root, f"{name}.jpg")
    spec = CorpusSpec("folder", path=str(root))
    made = folder.prepare(spec, n, tmp_path / "cache", lambda done, total, what: None)
    found = manifest.load(Path(made.manifest)).first(made.n)
    assert [item.id for item in found.items] == [f"{name}.jpg" for name in sorted(names)][:n]


def test_the_second_time_no_unchanged_file_is_read(
    images: Path, prepare: Prepare, vetted: list[bytes]
) -> None:
    fill(images, "a.jpg", "b.jpg", "c.jpg")
    (images / "d.jpg").write_bytes(making.jpeg()[:-40])
    first = prepare()
    assert len(vetted) == 4
    assert prepare() == first
    assert len(vetted) == 4


def test_a_changed_file_is_vetted_again_and_no_other(
    images: Path, prepare: Prepare, vetted: list[bytes]
) -> None:
    fill(images, "a.jpg", "b.jpg", "c.jpg")
    first = prepare()
    data = making.jpeg(seed=99)
    (images / "b.jpg").write_bytes(data)
    second = prepare()
    assert vetted[3:] == [data]
    assert second.digest() != first.digest()
    assert [item.id for item in second.items] == ["a.jpg", "b.jpg", "c.jpg"]


def test_a_smaller_n_forgets_nothing(images: Path, prepare: Prepare, vetted: list[bytes]) -> None:
    fill(images, "a.jpg", "b.jpg", "c.jpg")
    everything = prepare()
    assert [item.id for item in prepare(n=1).items] == ["a.jpg"]
    assert prepare() == everything
    assert len(vetted) == 3


def test_an_edited_list_is_made_again(
    images: Path, prepare: Prepare, vetted: list[bytes], tmp_path: Path
) -> None:
    fill(images, "a.jpg")
    first = prepare()
    (path,) = (tmp_path / "cache").rglob("manifest.csv")
    path.write_bytes(path.read_bytes().replace(b",64,48,", b",640,480,"))
    assert prepare() == first
    assert len(vetted) == 2


def test_other_limits_are_another_list(images: Path, prepare: Prepare) -> None:
    fill(images, "a.jpg")
    (images / "b.jpg").write_bytes(making.jpeg(300, 300))
    assert reasons(prepare()) == {}
    assert "over the limit" in reasons(prepare(limits=Limits(max_pixels=50_000)))["b.jpg"][1]
    assert reasons(prepare(limits=Limits(max_bytes=len(making.jpeg()))))["b.jpg"][0] == "read"


def test_nothing_is_written_into_the_users_folder(images: Path, prepare: Prepare) -> None:
    fill(images, "a.jpg")
    before = sorted(images.rglob("*"))
    prepare()
    assert sorted(images.rglob("*")) == before


def test_a_folder_that_is_none_or_holds_nothing_is_one_line(
    images: Path, prepare: Prepare, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="no image under"):
        prepare()
    fill(images, "a.jpg")
    with pytest.raises(UserError, match="does not exist"):
        prepare(root=tmp_path / "missing")
    with pytest.raises(UserError, match="is not a folder"):
        prepare(root=images / "a.jpg")
    with pytest.raises(UserError, match=r"add corpus\.path="):
        folder.prepare(
            CorpusSpec("folder"), None, tmp_path / "cache", lambda done, total, what: None
        )


def test_a_folder_of_nothing_but_broken_images_is_one_line(images: Path, prepare: Prepare) -> None:
    for name in ("a.jpg", "b.jpg"):
        (images / name).write_bytes(making.jpeg()[:100])
    with pytest.raises(
        UserError, match=r"none of the 2 images under .* a\.jpg: .*cut off"
    ) as caught:
        prepare()
    assert "\n" not in str(caught.value)
