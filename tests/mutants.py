"""Files from outside as an attacker or a bad disk would change them, each read as a user reads it.

    python -m tests.mutants KIND SEED

reads one mutant. `outcomes` reads many, in processes that may die, and says of which.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from io import BytesIO
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.torch import load_file

from tests import making
from tests.changes import (
    Mutate,
    of_bytes,
    of_gzip,
    of_json,
    of_lines,
    of_parquet,
    of_tar,
    of_weights,
)
from tests.conftest import ROOT
from tests.test_fuzz import bytes_of
from wallclock import open_images
from wallclock.errors import UserError, first_line
from wallclock.job import embed
from wallclock.job.settings import JobSettings
from wallclock.job.verify import verify
from wallclock.preprocess import Preprocess

#: What a mutant may cost: bytes of the whole process; seconds of CPU, and of a clock.
BYTES, CPU_S, WALL_S = 1_000_000_000, 20, 180
#: The most characters of a line that says what is wrong, without the path of the file.
LINE = 400
QUICK: dict[str, Any] = {"model": "null", "recipe": "pillow", "batch": 4, "shard": 4}


class Kind(NamedTuple):
    """Good files, of which one is changed and read."""

    good: Sequence[tuple[Path, bytes]]
    mutate: Mutate
    read: Callable[[Path], object]


#: Writes the files of a kind into a folder.
Prepare = Callable[[Path], Kind]


# --- files ----------------------------------------------------------------------------------------


def _images(folder: Path) -> list[str]:
    """Nine files, one of them no image."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{at}.jpg" for at in range(9)]
    for at, path in enumerate(paths):
        path.write_bytes(making.jpeg(24, 20, seed=at) if at != 3 else b"no image")
    return [str(path) for path in paths]


def _table(paths: list[str]) -> Any:
    n = range(len(paths))
    return pa.table(
        {
            "path": paths,
            "id": [f"i{at}" for at in n],
            "label": [*n],
            "split": pa.array(["train" if at % 3 else None for at in n]).dictionary_encode(),
            "tags": [["a", str(at)][: at % 3] or None for at in n],
            "at": pa.array([*n], pa.timestamp("ms", "UTC")),
            "size": pa.array([at * 100 for at in n], pa.decimal128(9, 2)),
            "about": [{"x": at / 7, "y": b"z" * at} for at in n],
        }
    )


def _parquets(table: Any) -> list[bytes]:
    """Written in several ways, without checksums, which an attacker would mend."""
    options: list[dict[str, Any]] = [
        {"compression": "none"},
        {"compression": "zstd", "use_dictionary": False},
        {"compression": "gzip", "data_page_version": "2.0", "row_group_size": 5},
        {"compression": "snappy", "write_page_index": True},
        {"store_schema": False, "column_encoding": "DELTA_BYTE_ARRAY", "use_dictionary": False},
    ]
    written = []
    for chosen in options:
        if "column_encoding" in chosen:
            texts = [x.name for x in table.schema if x.type == pa.string()]
            chosen["column_encoding"] = dict.fromkeys(texts, "DELTA_BYTE_ARRAY")
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **chosen)
        written.append(sink.getvalue().to_pybytes())
    return written


def _arrow(open_sink: Any, table: Any) -> list[bytes]:
    written = []
    for compression in (None, "lz4", "zstd"):
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with open_sink(sink, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=5)
        written.append(sink.getvalue().to_pybytes())
    return written


def _csv(table: Any) -> list[bytes]:
    frame = table.select(["path", "id", "label", "split"]).to_pandas()
    quoted = frame.to_csv(quoting=1).encode()
    return [frame.to_csv(index=False).encode(), quoted, frame.to_csv(sep="\t").encode("utf-16")]


def _lines(table: Any) -> list[bytes]:
    frame = table.select(["path", "id", "label", "tags"]).to_pandas()
    return [frame.to_json(orient="records", lines=True).encode()]


def a_list(name: str, mutate: Mutate, make: Callable[[Any], Sequence[bytes]]) -> Prepare:
    """`embed` of a list."""

    def prepare(folder: Path) -> Kind:
        names = [os.path.relpath(path, folder) for path in _images(folder / "images")]
        good = [(folder / name, data) for data in make(_table(names))]
        return Kind(good, mutate, _embed)

    return prepare


def _embed(src: Path, **settings: Any) -> None:
    out = src.parent / "new"
    try:
        embed(src, out, **QUICK, **settings)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _load(path: Path) -> None:
    with open_images(str(path), 8, 4, workers=1) as batches:
        for batch in batches:
            for failure in batch.failures:
                _check_line(failure["reason"], path.parent)


def a_table(name: str) -> Prepare:
    """`open_images` of a Parquet table."""

    def prepare(folder: Path) -> Kind:
        paths = _images(folder / "images")
        stored = [{"bytes": Path(path).read_bytes(), "path": None} for path in paths]
        columns = {"image": stored, "id": paths, "label": [*range(9)], "tags": [["a"]] * 9}
        tables = _parquets(pa.table(columns)), _parquets(_table(paths))
        return Kind([(folder / name, data) for data in chain(*tables)], of_parquet, _load)

    return prepare


def a_tar(name: str, mutate: Mutate) -> Prepare:
    """`open_images` of a tar."""

    def prepare(folder: Path) -> Kind:
        mode = "w:gz" if name.endswith("gz") else "w"
        forms = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
        return Kind([(folder / name, _tar(mode, form)) for form in forms], mutate, _load)

    return prepare


def _tar(mode: Any, form: int) -> bytes:
    file = BytesIO()
    with tarfile.open(fileobj=file, mode=mode, format=form) as tar:
        for at in range(5):
            content = {".jpg": making.jpeg(24, 20, seed=at), ".cls": b"1", ".json": b'{"a": 1}'}
            for end, data in content.items():
                info = tarfile.TarInfo(f"{'long/' * 30 if at == 2 else ''}{at}{end}")
                info.size = len(data)
                tar.addfile(info, BytesIO(data))
        link = tarfile.TarInfo("link.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "0.jpg"
        tar.addfile(link)
    return file.getvalue()


def of_dataset(name: str, mutate: Mutate) -> Prepare:
    """A file of OUT, as `verify`, a job that resumes and grows read it.

    Its checksum is mended: that finds damage, but no attacker.
    """

    def prepare(folder: Path) -> Kind:
        _images(folder / "images")
        embed(folder / "images", folder / "kept", **QUICK)
        if name.startswith("_unreached"):
            forget_an_image(folder / "kept")
        path = folder / "kept" / name
        data = [path.read_bytes()]
        if path.suffix == ".parquet":
            data += _parquets(pq.read_table(path, partitioning=None))
        return Kind([(folder / "changed", each) for each in data], mutate, read)

    def read(changed: Path) -> None:
        data, refusals = changed.read_bytes(), list[UserError]()
        for start in (_verify, _resume):
            out = changed.parent / "out"
            shutil.copytree(changed.parent / "kept", out)
            (out / name).write_bytes(data)
            mend(out, name)
            try:
                start(out)
            except UserError as error:
                _check_line(str(error), changed.parent)
                refusals.append(error)
            finally:
                shutil.rmtree(out)
        for refusal in refusals:
            raise refusal

    return prepare


def forget_an_image(out: Path) -> None:
    """Say that the fourth image, which had failed, was not reached."""
    name = "part-00000.jsonl"
    row = {**json.loads((out / "_failures" / name).read_bytes()), "runs": 1}
    (out / "_failures" / name).unlink()
    (out / "_unreached").mkdir(exist_ok=True)
    (out / "_unreached" / name).write_text(json.dumps(row))
    path = out / "_checksums" / "part-00000.json"
    path.write_text(path.read_text().replace("_failures", "_unreached"))
    mend(out, f"_unreached/{name}")


def mend(out: Path, name: str) -> None:
    """Record a file's size and checksum as they are."""
    path = out / "_checksums" / "part-00000.json"
    data = (out / name).read_bytes()
    recorded = json.loads(path.read_bytes()) if out / name != path else {}
    if name in recorded:
        recorded[name] = {"bytes": len(data), "sha256": sha256(data).hexdigest()}
        path.write_text(json.dumps(recorded))


def _verify(out: Path) -> None:
    faults = verify(out, n=4).faults
    for fault in faults:
        _check_line(fault, out.parent)
    # The kind `unreached` lacks an image from the start.
    if found := [fault for fault in faults if not fault.endswith("of 9 images")]:
        raise UserError(found[0])


def _resume(out: Path) -> None:
    """With an image more: ids of all parts are compared with the source's."""
    (out / "part-00001.parquet").unlink()
    images = out.parent / "images"
    more = images / "more.jpg"
    more.write_bytes(next(images.glob("*.jpg")).read_bytes())
    try:
        embed(images, out, **QUICK)
    finally:
        more.unlink()


def load_model(folder: Path) -> None:
    """As `embed` does before its first image."""
    from wallclock.stages.forward.networks import load_network

    recipe, model, _ = JobSettings(model=str(folder)).resolved("cpu")
    load_network(model, Preprocess.parse(recipe.preprocess, model.input_px).canvas)


def of_model(name: str, mutate: Mutate) -> Prepare:
    """A file of a model's folder, as `embed` reads it before its first image."""

    def prepare(folder: Path) -> Kind:
        from tests.families import FAMILIES  # which imports transformers

        paths = [folder / family / name for family in ("vit", "convnext", "clip")]
        for path in paths:
            FAMILIES[path.parent.name](path.parent)
            if name.endswith(".index.json"):
                whole, part = path.with_name("model.safetensors"), path.with_name("a-1.safetensors")
                whole.rename(part)
                weight_map = dict.fromkeys(load_file(part), part.name)
                path.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        return Kind([(path, path.read_bytes()) for path in paths], mutate, read)

    def read(path: Path) -> None:
        load_model(path.parent)

    return prepare


def _json(table: Any) -> list[bytes]:
    return [b"[%b]" % b",".join(text.splitlines()) for text in _lines(table)]


def _text(table: Any) -> list[bytes]:
    return ["\n".join(table["path"].to_pylist()).encode()]


KINDS: dict[str, Prepare] = {
    "list.parquet": a_list("list.parquet", of_parquet, _parquets),
    "list.arrow": a_list("list.arrow", of_bytes, partial(_arrow, pa.ipc.new_file)),
    "stream.arrow": a_list("stream.arrow", of_bytes, partial(_arrow, pa.ipc.new_stream)),
    "list.csv": a_list("list.csv", of_bytes, _csv),
    "list.jsonl": a_list("list.jsonl", of_lines, _lines),
    "list.json": a_list("list.json", of_json, _json),
    "list.txt": a_list("list.txt", of_bytes, _text),
    "table.parquet": a_table("table.parquet"),
    "images.tar": a_tar("images.tar", of_tar),
    "images.tar.gz": a_tar("images.tar.gz", of_gzip),
    "part": of_dataset("part-00000.parquet", of_parquet),
    "failures": of_dataset("_failures/part-00000.jsonl", of_lines),
    "unreached": of_dataset("_unreached/part-00000.jsonl", of_lines),
    "checksums": of_dataset("_checksums/part-00000.json", of_json),
    "edition": of_dataset("_editions/from-00000.json", of_json),
    "description": of_dataset("_dataset.json", of_json),
    "config": of_model("config.json", of_json),
    "preprocessor": of_model("preprocessor_config.json", of_json),
    "weights": of_model("model.safetensors", of_weights),
    "index": of_model("model.safetensors.index.json", of_json),
}


# --- reading --------------------------------------------------------------------------------------


def _check_line(text: str, folder: Path) -> None:
    line = text.replace(str(folder), "")
    assert line.isprintable(), line
    assert len(line) <= LINE, line


def _outcome(kind: Kind, seed: int, folder: Path) -> str:
    """`read` or `refused`; else what is wrong."""
    draw = random.Random(seed)
    path, data = draw.choice(kind.good)
    path.write_bytes(kind.mutate(draw, data))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts again
    printed = os.fstat(2).st_size
    signal.alarm(WALL_S)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        kind.read(path)
        outcome = "read"
    except UserError as error:
        _check_line(str(error), folder)
        outcome = f"refused: {str(error).replace(str(folder), '')}"
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        path.write_bytes(data)
    assert os.fstat(2).st_size == printed, "it printed something"
    assert bytes_of("VmHWM") < BYTES, f"{bytes_of('VmHWM') // 10**6:,} MB"
    return outcome


def _read(jobs: Sequence[tuple[str, int]]) -> None:
    """Read mutants, with a line for each."""
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with TemporaryDirectory() as base:
        kinds: dict[str, Kind] = {}
        for name, seed in jobs:
            folder = Path(base, name)
            if name not in kinds:
                folder.mkdir()
                kinds[name] = KINDS[name](folder)
            try:
                outcome = _outcome(kinds[name], seed, folder)
            except Exception as error:  # noqa: BLE001 - that is what is looked for
                outcome = f"wrong: {type(error).__name__}: {first_line(error)}"
            print(f"{name} {seed} {outcome}", file=report, flush=True)


def outcomes(jobs: Sequence[tuple[str, int]]) -> Iterator[str]:
    """A line for each mutant: its kind, its seed, and what became of it.

    The processes that read them may die; the next one goes on behind what killed it.
    """
    left = [*jobs]
    while left:
        with TemporaryFile() as said:
            done = subprocess.run(
                [sys.executable, "-m", "tests.mutants"],
                cwd=ROOT,
                input=json.dumps(left).encode(),
                stdout=subprocess.PIPE,
                stderr=said,
                check=False,
            )
            said.seek(0)
            last = said.read().decode("utf-8", "replace").splitlines()[-5:]
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        yield from lines
        left = left[len(lines) :]
        if left:
            name, seed = left.pop(0)
            yield f"{name} {seed} wrong: ended with {done.returncode}: {' '.join(last)}"


if __name__ == "__main__":
    if sys.argv[1:]:
        with TemporaryDirectory() as base:
            print(_outcome(KINDS[sys.argv[1]](Path(base)), int(sys.argv[2]), Path(base)))
    else:
        _read(json.load(sys.stdin))
