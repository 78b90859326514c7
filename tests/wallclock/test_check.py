"""Validation refuses damaged and dangerous files before any decoder, fast and in little memory."""

import io
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, features

from tests import making
from wallclock import check, jpeg
from wallclock.check import Header, Inspector, read_header, validate
from wallclock.errors import ImageError
from wallclock.recipe import Limits
from wallclock.stages import decode
from wallclock.stages.decode.pil import load_stored, quiet

SOUND = making.jpeg(120, 90)
#: Where its first Huffman table begins.
TABLE = SOUND.index(b"\xff\xc4") + 5
#: A segment that contains what looks like the end of the image.
COMMENT = b"\xff\xfe\x00\x06\xff\xd9\xff\xd9"


def verdict(data: bytes, limits: Limits | None = None) -> str:
    """`valid`, or `failed` if the failure has a stage and a reason."""
    try:
        validate(data, limits or Limits())
    except ImageError as error:
        explained = error.stage in ("read", "decode") and len(error.reason) > 5
        return "failed" if explained else f"without a reason: {error}"
    return "valid"


def refusal_of(data: bytes, limits: Limits | None = None) -> ImageError:
    with pytest.raises(ImageError) as caught:
        validate(data, limits or Limits())
    return caught.value


def test_torture_files_as_expected(torture: list[tuple[Path, str]]) -> None:
    """`decodes` is valid; damaged and dangerous files fail with a stage and a reason."""
    valid = ("decodes", "not a JPEG: error, or decoded by its content, as policy says")
    either = (
        "valid JPEG, process many decoders lack: pixels or a clean error",
        "decoders disagree: pixels or error, never a crash",
        "decodes, with a warning (strict decoders refuse)",  # of bytes between segments
    )
    assert len(torture) == 56
    wrong = [
        (path.name, expected)
        for path, expected in torture
        if expected not in either
        and verdict(path.read_bytes()) != ("valid" if expected in valid else "failed")
    ]
    assert not wrong


def test_real_photos_are_valid(photos: list[Path]) -> None:
    for path in photos:
        header = validate(path.read_bytes(), Limits())
        with Image.open(path) as image:
            assert (header.width, header.height) == image.size


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (SOUND, Header("jpeg", 120, 90, 3, "baseline", 1, "4:2:0")),
        (making.oriented(6), Header("jpeg", 64, 48, 3, "baseline", 1, "4:2:0")),
        (making.jpeg(mode="L"), Header("jpeg", 64, 48, 1, "baseline", 1, "gray")),
        (making.jpeg(mode="CMYK"), Header("jpeg", 64, 48, 4, "baseline", 1, "4:4:4")),
        (making.jpeg(progressive=True), Header("jpeg", 64, 48, 3, "progressive", 10, "4:2:0")),
        (making.encode(making.picture(), "PNG"), Header("png", 64, 48)),
        (making.encode(making.picture(), "PNG", "RGBA"), Header("png", 64, 48, 4)),
        (making.encode(making.picture(), "PNG", "P"), Header("png", 64, 48, 1)),
        (making.png_16_bit(), Header("png", 8, 6, 1)),
        (making.encode(making.picture(), "GIF", "P"), Header("gif", 64, 48, 1)),
        (making.encode(making.picture(), "WEBP"), Header("webp", 64, 48)),
    ],
)
def test_headers_of_valid_files(data: bytes, header: Header) -> None:
    assert validate(data, Limits()) == header


JPEGS = [SOUND, making.jpeg(progressive=True), making.jpeg(mode="L"), making.jpeg(mode="CMYK")]


@given(st.sampled_from(JPEGS), st.floats(0, 1, exclude_max=True))
def test_jpeg_cut_anywhere_is_refused(data: bytes, share: float) -> None:
    length = int(share * len(data))
    assert refusal_of(data[:length]).stage == ("decode" if length else "read")


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF"])
def test_other_truncated_formats_are_refused(kind: str) -> None:
    data = making.encode(making.picture(300, 200), kind, "P" if kind == "GIF" else "RGB")
    for share in (10, 2):
        assert refusal_of(data[: len(data) // share]).stage == "decode"


def test_threads_leave_the_warning_filters_as_they_were() -> None:
    """Two that overlap: the first to leave must not restore, nor the second what the first set."""
    before = list(warnings.filters)
    with quiet:
        other = threading.Thread(target=quiet.__enter__)
        other.start()
        other.join()
    assert warnings.filters[0][0] == "ignore"
    quiet.__exit__()
    assert list(warnings.filters) == before


@given(st.binary(max_size=500))
def test_junk_after_the_end_is_ignored(junk: bytes) -> None:
    assert validate(SOUND + junk, Limits()) == validate(SOUND, Limits())


@pytest.mark.parametrize(
    ("data", "stage", "words"),
    [
        (b"", "read", "empty"),
        (b"this is text named .jpg", "decode", "not a JPEG"),
        (b"\xff\xd8\xff", "decode", "cut off"),
        (b"\xff\xd8\xff\xd9", "decode", "ends before its first scan"),
        (b"\n" + SOUND, "decode", "not a JPEG"),
        (SOUND[:2] + b"junk" + SOUND[2:], "decode", "not a JPEG"),
        (b"\x89PNG\r\n\x1a\n" + bytes(30), "decode", "cannot decode this png"),
        (making.claiming(SOUND, 0, 40), "decode", "header claims 0x40 pixels"),
        (making.claiming(SOUND, 40, 0), "decode", "header claims 40x0 pixels"),
        (SOUND[:TABLE] + b"\xff" * 16 + SOUND[TABLE + 16 :], "decode", "simplejpeg: "),
        (SOUND[:-600] + bytes(200) + SOUND[-400:], "decode", "simplejpeg: "),
    ],
)
def test_no_image_has_a_reason(data: bytes, stage: str, words: str) -> None:
    error = refusal_of(data)
    assert error.stage == stage
    assert any(word in error.reason for word in words.split("|")), error.reason


@pytest.mark.parametrize(
    ("sof", "precision", "words"),
    [(0xC3, 8, "lossless"), (0xC1, 12, "12-bit"), (0xC5, 8, "hierarchical")],
)
def test_rare_jpeg_processes_are_refused(sof: int, precision: int, words: str) -> None:
    at = making.frame_at(SOUND)
    data = bytearray(SOUND)
    data[at + 1], data[at + 4] = sof, precision
    assert words in refusal_of(bytes(data)).reason


@pytest.mark.parametrize(
    "between", [b"", COMMENT, b"\xff" * 9], ids=["plain", "decoy", "fill bytes"]
)
def test_scan_bomb_is_refused_before_decoding(
    between: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kilobytes that cost a decoder minutes: thousands of scans over the same coefficients."""
    for decoder in ("simplejpeg.decode_jpeg", "PIL.ImageFile.ImageFile.load"):
        monkeypatch.setattr(decoder, lambda *_, **__: pytest.fail("a decoder was called"))
    bomb = making.scan_bomb(5_000, between)
    assert len(bomb) < 400_000
    assert "more JPEG scans than the limit of 64" in refusal_of(bomb).reason


def test_scans_are_counted_as_by_a_decoder() -> None:
    progressive = making.jpeg(progressive=True)
    first = progressive.index(b"\xff\xda")
    assert read_header(progressive, Limits()).scans == 10
    assert read_header(progressive[:first] + COMMENT + progressive[first:], Limits()).scans == 10
    assert read_header(progressive, Limits(max_scans=10)).scans == 10
    assert "limit of 9" in refusal_of(progressive, Limits(max_scans=9)).reason
    twice = progressive + progressive
    assert read_header(twice, Limits(max_scans=10)).scans == 10, "the first image counts"


def test_fill_bytes_take_linear_time() -> None:
    """Megabytes of them; in quadratic time, pytest's time limit would end this."""
    assert "truncated" in refusal_of(SOUND[:-2] + b"\xff" * 4_000_000 + b"\x00").reason


@given(st.integers(1, 64), st.integers(1, 64))
def test_pixel_limit_is_exact(width: int, height: int) -> None:
    data = making.jpeg(width, height)
    assert validate(data, Limits(max_pixels=width * height)).width == width
    assert "over the limit" in refusal_of(data, Limits(max_pixels=width * height - 1)).reason


PLAIN = making.jpeg(40, 24)
#: Where a segment may stand, or stray bytes: behind each segment of the header.
BETWEEN = [end for _, _, _, end in jpeg.segments(PLAIN) if end < PLAIN.index(b"\xff\xda")]
PROFILE = b"ICC_PROFILE\0"


METADATA = st.builds(
    making.segment,
    st.sampled_from([0xE0, 0xE1, 0xE2, 0xE3, 0xED, 0xEE, 0xFE]),
    st.builds(
        bytes.__add__,
        st.sampled_from([b"", PROFILE, b"Exif\0\0", b"JFIF\0", b"Adobe"]),
        st.binary(max_size=6),
    ),
)
STRAY = st.binary(max_size=6).map(lambda data: data.replace(b"\xff", b"\0"))


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(BETWEEN), STRAY | METADATA), max_size=4),
    st.binary(min_size=2, max_size=2),
)
def test_metadata_and_stray_bytes_damage_no_jpeg(
    added: list[tuple[int, bytes]], version: bytes
) -> None:
    """The pixels are the same, for strict decoders too; a damaged scan is seen as before."""
    data = PLAIN
    for at, more in sorted(added, key=lambda each: -each[0]):
        data = data[:at] + more + data[at:]
    at = data.index(b"JFIF\0") + 5
    data = data[:at] + version + data[at + 2 :]
    assert validate(data, Limits()).width == 40
    np.testing.assert_array_equal(decode.make("simplejpeg")(data), decode.make("pil")(PLAIN))
    assert verdict(data[:-30]) == "failed"
    for damaged in (data[:-30] + b"\xff\xd9", data[:-40] + bytes(38) + data[-2:]):
        with pytest.raises(ImageError):
            decode.make("simplejpeg")(damaged)


def with_exif(kind: str, exif: bytes) -> bytes:
    """A picture in a format, with these bytes as its EXIF; of a TIFF they say where that lies."""
    pixels = making.picture(40, 24)
    if kind == "PNG":
        data = making.encode(pixels, kind)
        return data[:33] + making.png_chunk(b"eXIf", exif) + data[33:]
    if kind == "JPEG":
        return PLAIN[:2] + making.segment(0xE1, b"Exif\0\0" + exif) + PLAIN[2:]
    if kind == "WEBP":
        return making.encode(pixels, kind, exif=exif)
    if kind == "AVIF":
        at = AVIF.rindex(b"II*\0")  # Pillow has made a box of the orientation
        return AVIF[:at] + exif[: len(SIX)] + AVIF[at + len(exif[: len(SIX)]) :]
    directory = int.from_bytes(exif[-4:], "little")
    return making.encode(pixels, kind, tiffinfo={0x112: 6, 0x8769: directory})


SIX = b"II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0"
TWO = SIX[:8] + b"\2" + SIX[9:22] + b"\x0f\1\2\0\x14\0\0\0\x26\0\0\0" + bytes(4) + b"mine" * 5
AVIF = making.encode(making.picture(40, 24), "AVIF", exif=TWO) if features.check("avif") else b""
CHANGED = st.tuples(st.integers(0, len(SIX) - 1), st.binary(max_size=3)).map(
    lambda edit: SIX[: edit[0]] + edit[1] + SIX[edit[0] + len(edit[1]) :]
)


KINDS = ["JPEG", "PNG", "WEBP", "TIFF", *(["AVIF"] if AVIF else [])]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(exif=st.binary(min_size=1, max_size=60) | CHANGED)
def test_no_exif_damages_an_image(kind: str, exif: bytes) -> None:
    """It is turned as EXIF says that can be read, or not at all, and has the pixels it had."""
    data, plain = with_exif(kind, exif), with_exif(kind, SIX)
    validate(data, Limits())
    for rotate in (True, False):
        info = Inspector(Limits(), "pil", rotate=rotate)(0, "a", data)
        assert info.orientation in (range(1, 9) if rotate else (1,))
    assert info.current_size == (40, 24)
    np.testing.assert_array_equal(decode.make_other("pil")(data), decode.make_other("pil")(plain))


@pytest.mark.parametrize("sampling", [0, 1, 2])
def test_cmyk_of_any_sampling(sampling: int) -> None:
    data = making.jpeg(mode="CMYK", subsampling=sampling)
    validate(data, Limits())
    info = Inspector(Limits(), "simplejpeg")(0, "a", data)
    assert not info.plain_jpeg
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    np.testing.assert_array_equal(decode.make_other("pil")(data), pixels)
    assert verdict(data[:-200]) == "failed"


def test_libraries_say_nothing(
    capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    """No warning without a file's name, about damage or about what is only odd."""
    tagged = making.encode(
        making.picture(), "TIFF", compression="tiff_lzw", tiffinfo={65_000: "mine"}
    )
    palette = making.encode(making.picture(), "PNG", "P", transparency=bytes(range(256)))
    for data in (tagged, palette, tagged[:200] + bytes(50) + tagged[250:]):
        if verdict(data) == "valid":
            decode.make_other("pil")(data)
    assert capfd.readouterr() == ("", "")
    assert not [*recwarn]


@pytest.mark.parametrize(("large", "at_once"), [(0, 1), (10**9, 3)])
def test_large_pictures_are_decoded_one_at_a_time(
    large: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once are twice the memory; of small ones several are."""
    inside, counts, together = list[object](), list[int](), threading.Barrier(3, timeout=30)
    data, load = making.encode(making.picture(), "PNG"), load_stored

    def load_slowly(image: Image.Image) -> object:
        inside.append(image)
        counts.append(len(inside))
        time.sleep(0.02)
        inside.pop()
        return load(image)

    def judge_beside_others(_: int) -> None:
        together.wait()
        validate(data, Limits())

    monkeypatch.setattr(check, "LARGE_PIXELS", large)
    monkeypatch.setattr(check, "load_stored", load_slowly)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(judge_beside_others, range(3)))
    assert max(counts) == at_once
