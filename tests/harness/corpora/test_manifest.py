"""The list of a corpus: any names read back, and an edited list is refused."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.corpora import manifest as manifests
from harness.corpora.manifest import Item, Manifest
from wallclock.errors import UserError

ITEM = Item("a.jpg", "a.jpg", 10, 4, 3, "0" * 64, "jpeg", "baseline", 3, 123)
FAILED = Item("b.jpg", "b.jpg", 7, 0, 0, "1" * 64, "", "", 0, 5, "decode", 'damaged, "badly"')
MANIFEST = Manifest("folder", "original", Path("/images"), (ITEM, FAILED))

#: File names as Linux allows them: any bytes but NUL and the slash, stray ones as surrogates.
NAMES = st.binary(min_size=1, max_size=40).map(
    lambda raw: raw.replace(b"\0", b"0").replace(b"/", b"_").decode("utf-8", "surrogateescape")
)


@given(st.lists(NAMES, min_size=1, max_size=6), NAMES, st.text(max_size=30), st.text(max_size=30))
def test_any_text_reads_back(names: list[str], folder: str, identity: str, reason: str) -> None:
    items = [replace(ITEM, path=name) for name in names]
    failed = replace(FAILED, id=identity, failed_reason=reason)
    manifest = replace(MANIFEST, root=Path("/") / folder, items=(*items, failed))
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "manifest.csv"
        manifests.save(manifest, path)
        assert manifests.load(path) == manifest


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "manifest.csv"
    manifests.save(MANIFEST, path)
    return path


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"jpeg", b"jqeg"), (b",4,3,", b",4,2,"), (b"b.jpg", b"c.jpg"), (b"123", b"")],
)
def test_edited_list_is_refused(saved: Path, before: bytes, after: bytes) -> None:
    data = saved.read_bytes()
    assert before in data
    saved.write_bytes(data.replace(before, after, 1))
    with pytest.raises(UserError, match="was edited"):
        manifests.load(saved)
    assert manifests.load_or_none(saved) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 0}', "\ud800"])
def test_broken_companion_is_refused(saved: Path, text: str) -> None:
    saved.with_suffix(".json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UserError, match="manifest"):
        manifests.load(saved)
    assert manifests.load_or_none(saved) is None
    saved.unlink()
    with pytest.raises(UserError, match="no readable manifest"):
        manifests.load(saved)


def test_digest_covers_ids_contents_and_failures_only() -> None:
    def digest(**changes: Any) -> str:
        return replace(MANIFEST, items=(replace(ITEM, **changes), FAILED)).digest()

    assert replace(MANIFEST, root=Path("/elsewhere")).digest() == MANIFEST.digest()
    assert digest(mtime_ns=9, path="x") == MANIFEST.digest()
    assert replace(MANIFEST, items=(FAILED, ITEM)).digest() != MANIFEST.digest()
    changed = {digest(id="x"), digest(sha256="2" * 64), digest(failed_stage="read")}
    assert len(changed - {MANIFEST.digest()}) == 3


def test_valid_failed_and_head_keep_the_order() -> None:
    rows = (FAILED, ITEM, ITEM, FAILED, ITEM)
    items = tuple(replace(item, id=f"{index}") for index, item in enumerate(rows))
    manifest = replace(MANIFEST, items=items)
    assert [item.id for item in manifest.valid] == ["1", "2", "4"]
    assert [item.id for item in manifest.failed] == ["0", "3"]
    assert [item.id for item in manifest.head(2).items] == ["0", "1"]
    failure = {"id": "3", "stage": "decode", "reason": 'damaged, "badly"'}
    assert manifests.failure_rows(items)[1] == failure


def test_size_stats_are_of_valid_images() -> None:
    large, png = replace(ITEM, bytes=1_000, width=1_000, height=1_000), replace(ITEM, format="png")
    stats = replace(MANIFEST, items=(large, png, FAILED)).size_stats()
    assert (stats["n_sound"], stats["n_failed"]) == (2, 1)
    assert stats["median_kb"] == pytest.approx((1 + 0.01) / 2)
    assert stats["non_jpeg_share"] == 0.5
