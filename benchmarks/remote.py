"""Reading over HTTP and from S3: data/benchmarks/remote.csv, with its provenance.

The same images are files in the page cache, and objects of a server in a process of its own, on
loopback. `open_images` reads the files, the objects over HTTP, and from S3. So do others from S3:
boto3, obstore and s3torchconnector in a pool of threads in front of `open_images`; s3torchconnector
and webdataset (`pipe:curl`, tar shards) in a DataLoader with as many workers as cores, around
`wallclock.decode`. `make data` fetches and checks a corpus from that server. In each round every
reader takes one pass, forwards and backwards in turn. A row has, each as the median, the lowest and
the highest round: the CPU time per image of a pass, of all processes but the server; what that is
above the files' in the same round; images per second from the first batch on; their ratio to `s3`.
A reader whose images are not those of the files is not measured, and its row says so.

    python -m benchmarks.remote [--folder DIR] [--n N] [--rounds N] [--seconds S] [--only READER …]
"""

import gzip
import os
import resource
import tarfile
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import boto3
import numpy as np
from botocore.config import Config
from torch.utils.data import DataLoader

from benchmarks._common import arguments, image_sets, in_turn, save, spread
from benchmarks.loader import BATCH, by_wallclock, opened, take_pass
from benchmarks.objects import serving
from harness.corpora import prepare
from harness.corpora.abo import plan
from harness.peers import import_or_unavailable
from harness.spec import CorpusSpec
from wallclock.errors import Unavailable

#: Concurrent requests of a pool of threads.
_THREADS = 16
_BUCKET, _REGION = "bucket", "us-east-1"
_AWS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": _REGION}
#: How often the images repeat in a pass, and batches of a pass at least.
_MOST_COPIES, _LEAST_BATCHES = 64, 6
#: The image set as which `make data` lists the objects, and what lists or holds all of them.
_SET, _CATALOGUE, _TAR = "small_256", Path(plan.KEY).name, "all.tar"


@dataclass(frozen=True)
class Place:
    """Where the images are. A pass reads each of them under `copies` keys."""

    folder: Path
    url: str
    names: Sequence[str]
    copies: int = 1

    @property
    def keys(self) -> list[str]:
        """Of the objects of a pass."""
        return [f"{copy:02x}/{name}" for copy in range(self.copies) for name in self.names]


class Pass(NamedTuple):
    """What a reader takes for all images of a pass."""

    cpu_us: float
    img_per_s: float


def in_pool(get: Callable[[Any], bytes], keys: Iterable[Any]) -> Iterator[bytes]:
    """Bodies in the order of the keys, a few for each thread ahead."""
    with ThreadPoolExecutor(_THREADS) as pool:
        ahead = deque[Any]()
        for key in keys:
            ahead.append(pool.submit(get, key))
            if len(ahead) == 4 * _THREADS:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def by_boto3(place: Place) -> Iterator[Any]:
    """A client for all threads, with a connection for each."""
    client = boto3.client("s3", config=Config(max_pool_connections=_THREADS))

    def get(key: str) -> bytes:
        return bytes(client.get_object(Bucket=_BUCKET, Key=key)["Body"].read())

    return opened(in_pool(get, place.keys))


def by_obstore(place: Place) -> Iterator[Any]:
    """https://developmentseed.org/obstore/latest/api/get/"""
    obstore = import_or_unavailable("obstore")
    store = obstore.store.S3Store(_BUCKET, client_options={"allow_http": True})
    return opened(in_pool(lambda key: obstore.get(store, key).bytes().to_bytes(), place.keys))


def by_s3torchconnector(place: Place) -> Iterable[Any]:
    """https://github.com/awslabs/s3-connector-for-pytorch: a dataset in a DataLoader."""
    dataset = _s3_dataset(place, lambda reader: by_wallclock(reader.read()))
    return DataLoader(dataset, BATCH, num_workers=os.cpu_count() or 1)


def by_s3torchconnector_in_pool(place: Place) -> Iterator[Any]:
    """The same dataset's bytes, by threads."""
    dataset = _s3_dataset(place, lambda reader: reader.read())
    return opened(in_pool(dataset.__getitem__, range(len(dataset))))


def _s3_dataset(place: Place, transform: Callable[[Any], Any]) -> Any:
    library = import_or_unavailable("s3torchconnector")
    return library.S3MapDataset.from_objects(
        [f"s3://{_BUCKET}/{key}" for key in place.keys],
        region=_REGION,
        endpoint=place.url,
        transform=transform,
        s3client_config=library.S3ClientConfig(force_path_style=True),
        reader_constructor=library.S3ReaderConstructor.sequential(),
    )


def by_webdataset(place: Place) -> Iterable[Any]:
    """https://github.com/webdataset/webdataset: a pipe of curl for each shard."""
    library = import_or_unavailable("webdataset")
    urls = [f"pipe:curl -s {place.url}/{_BUCKET}/{copy}/{_TAR}" for copy in range(place.copies)]
    dataset = library.WebDataset(urls, shardshuffle=False, empty_check=False)
    dataset = dataset.map(lambda sample: by_wallclock(sample["jpg"]))
    return DataLoader(dataset, BATCH, num_workers=os.cpu_count() or 1)


def make_data(place: Place) -> Iterator[Any]:
    """`make data` into an empty folder; the clock starts at an empty batch."""
    prefixes = {_SET: place.copies}
    spec = CorpusSpec("abo", endpoint=place.url, bucket=_BUCKET, region=_REGION, prefixes=prefixes)
    yield SimpleNamespace(ids=())
    with tempfile.TemporaryDirectory() as cache:
        prepare.prepare(spec, _SET, len(place.keys), Path(cache), lambda *_: None)
        yield SimpleNamespace(ids=[*Path(cache).rglob("*.jpg")])


_FILES, _HTTP, _S3, _DATA = OURS = ("files", "http", "s3", "make data")
READERS: Mapping[str, Callable[[Place], Iterable[Any]]] = {
    _FILES: lambda place: opened([str(place.folder / name) for name in place.names] * place.copies),
    _HTTP: lambda place: opened([f"{place.url}/{_BUCKET}/{key}" for key in place.keys]),
    _S3: lambda place: opened([f"s3://{_BUCKET}/{key}" for key in place.keys]),
    "boto3 in a pool": by_boto3,
    "obstore in a pool": by_obstore,
    "s3torchconnector": by_s3torchconnector,
    "s3torchconnector in a pool": by_s3torchconnector_in_pool,
    "webdataset, pipe:curl": by_webdataset,
    _DATA: make_data,
}


def main() -> None:
    """Measure, write the table, print it, and compare."""
    parser = arguments(__doc__)
    parser.set_defaults(n=200)
    parser.add_argument("--only", nargs="+", choices=READERS, default=[*READERS])
    choices = parser.parse_args()
    readers = [name for name in READERS if name in {_FILES, _S3, *choices.only}]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        for images, paths in image_sets(choices, Path(work)):
            with tempfile.TemporaryDirectory() as folder:
                timed = measure(paths, Path(folder), readers, choices.rounds, choices.seconds)
            rows += make_rows(images, len(paths), *timed)
    save("remote", rows)
    print(*compare(rows), sep="\n")


def measure(
    paths: Sequence[Path], folder: Path, readers: Sequence[str], rounds: int, seconds: float
) -> tuple[dict[str, list[Pass]], dict[str, str]]:
    """The passes of each reader by round, and why the others have none."""
    names = lay_out(paths, folder)
    least = -(-_LEAST_BATCHES * BATCH // len(names))
    places, reasons = {}, {}
    with serving(folder) as url:
        os.environ |= {**_AWS, "AWS_ENDPOINT_URL": url}
        place = Place(folder, url, names)
        expected = _digests(READERS[_FILES](place))
        for name in readers:
            try:
                if name != _DATA and _digests(READERS[name](place)) != expected:
                    raise Unavailable("its images are not those of the files")
                rate = take(name, replace(place, copies=least)).img_per_s
            except Unavailable as error:
                reasons[name] = str(error)
                continue
            copies = min(max(round(seconds * rate / len(names)), least), _MOST_COPIES)
            places[name] = replace(place, copies=copies)
        return in_turn(lambda name: take(name, places[name]), places, rounds), reasons


def lay_out(paths: Sequence[Path], folder: Path) -> list[str]:
    """Copy the images into a folder, with a tar of all, and ABO's catalogue; their names."""
    names = [f"{number:05}.jpg" for number in range(len(paths))]
    with tarfile.open(folder / _TAR, "w") as tar:
        for path, name in zip(paths, names, strict=True):
            (folder / name).write_bytes(path.read_bytes())
            tar.add(folder / name, name)
    keys = Place(folder, "", names, _MOST_COPIES).keys
    lines = [plan.COLUMNS, *(f"{number},1,1,{key}" for number, key in enumerate(keys))]
    (folder / _CATALOGUE).write_bytes(gzip.compress("\n".join(lines).encode()))
    return names


def _digests(batches: Iterable[Any]) -> Counter[bytes]:
    """What images there are, in any order."""
    arrays = (np.asarray(getattr(batch, "images", batch)) for batch in batches)
    return Counter(sha256(image.tobytes()).digest() for array in arrays for image in array)


def take(name: str, place: Place) -> Pass:
    """One pass of a reader. Raises RuntimeError: images are missing."""
    before, n = _cpu_s(), len(place.keys)
    arrived, seconds = take_pass(READERS[name], place)
    if arrived < n - BATCH:
        raise RuntimeError(f"{name}: {n} images are there, fewer arrived")
    return Pass((_cpu_s() - before) / n * 1e6, arrived / seconds)


def _cpu_s() -> float:
    """Of this process and of its children that have ended: the server has not."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def make_rows(
    images: str, n: int, passes: Mapping[str, Sequence[Pass]], reasons: Mapping[str, str]
) -> list[dict[str, Any]]:
    """A row for each reader."""
    rows = []
    for name in (*passes, *reasons):
        taken, reason = passes.get(name, ()), reasons.get(name, "")
        rounds = [*zip(taken, passes[_FILES], passes[_S3], strict=not reason)]
        row = {"images": images, "reader": name, "n_images": n, "rounds": len(taken)}
        row |= spread("cpu_us", [each.cpu_us for each in taken])
        row |= spread("over_files_us", [each.cpu_us - files.cpu_us for each, files, _ in rounds])
        row |= spread("img_per_s", [each.img_per_s for each in taken])
        row |= spread("vs_s3", [each.img_per_s / s3.img_per_s for each, _, s3 in rounds])
        state = {"status": "unavailable" if reason else "ok", "reason": reason}
        rows.append(row | {"origin": "measured", **state})
    return rows


def compare(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """For each image set: reading from S3, and the next fastest that does."""
    ours = "{images}, from S3: {img_per_s:,.0f} images per second, {cpu_us:,.0f} µs of CPU each"
    other = "  {reader}: {vs_s3:.2f} × [{vs_s3_min:.2f} to {vs_s3_max:.2f}], {cpu_us:,.0f} µs"
    for images in dict.fromkeys(row["images"] for row in rows):
        measured = [row for row in rows if row["images"] == images and row["rounds"]]
        yield from (ours.format_map(row) for row in measured if row["reader"] == _S3)
        others = [row for row in measured if row["reader"] not in OURS]
        yield from map(other.format_map, sorted(others, key=lambda row: -row["vs_s3"])[:1])


if __name__ == "__main__":
    main()
