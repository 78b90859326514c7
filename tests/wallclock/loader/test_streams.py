"""Streams: any iterable, tars and tables; bounded read-ahead, ranks, epochs, exact resume."""

import gzip
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import making
from tests.running import run_python
from wallclock.errors import UserError
from wallclock.loader.images import open_images
from wallclock.loader.shards import expand
from wallclock.loader.stream import StreamedBatches

FILES = [making.jpeg(48, 40, seed) for seed in range(7)]


class Items:
    """Can be iterated again, has no length; counts what was taken."""

    def __init__(self, n: int) -> None:
        self.n, self.taken = n, 0

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.n):
            self.taken += 1
            yield {"image": FILES[number % len(FILES)], "label": number}


def labels_of(batches: Any) -> list[list[int]]:
    return [batch.labels for batch in batches]


@pytest.mark.parametrize("batch", [1, 4, 32])
def test_two_batches_are_read_before_the_first(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    items, at_first, taken = Items(10_000), [], StreamedBatches.taken

    def count_and_take(self: StreamedBatches) -> None:
        at_first.append(items.taken)
        taken(self)

    monkeypatch.setattr(StreamedBatches, "taken", count_and_take)
    with open_images(items, 8, batch, workers=2) as batches:
        next(batches)
        assert at_first[0] <= 2 * batch
        for _ in range(5):
            next(batches)
        # Later as many as the ring has rows: bounded, whatever is fast or slow.
        assert items.taken <= 6 * batch + 2 * 8 + 5 * batch
    assert items.taken < 10_000


def test_an_iteration_goes_on_with_the_next_epoch() -> None:
    with open_images(Items(6), 8, 4, shuffle=6) as batches:
        epochs = [labels_of(batches) for _ in range(3)]
        assert batches.epoch == 2
        batches.set_epoch(1)
        assert labels_of(batches) == epochs[1]
    assert len({str(epoch) for epoch in epochs}) == 3


def test_a_stream_is_told_its_epoch() -> None:
    class Told(Items):
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[Any]:
            for item in super().__iter__():
                yield item | {"label": self.epoch}

    with open_images(Told(3), 8, epochs=2) as batches:
        assert labels_of(batches) == [[0] * 3, [1] * 3]
        batches.set_epoch(5)
        assert next(batches).labels == [5] * 3


def test_an_iterator_has_one_epoch() -> None:
    with open_images(iter(Items(3)), 8) as batches:
        assert labels_of(batches) == [[0, 1, 2]]
        with pytest.raises(UserError, match="an iterator has one epoch"):
            next(iter(batches))
    with pytest.raises(TypeError, match="a stream has no length"):
        len(batches)


def test_what_the_iterable_raises_comes_behind_its_batches() -> None:
    def broken() -> Iterator[Any]:
        yield from list(Items(9))
        raise OSError("disk gone")

    with open_images(broken(), 8, 4) as batches:
        assert [next(batches).labels, next(batches).labels] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(OSError, match="disk gone"):
            next(batches)


def test_left_in_the_middle_a_generator_is_closed() -> None:
    closed = threading.Event()

    def items() -> Iterator[bytes]:
        try:
            while True:
                yield FILES[0]
        finally:
            closed.set()

    with open_images(items(), 8, 4) as batches:
        next(batches)
    assert closed.wait(10)


def test_a_waiting_generator_does_not_hold_the_close() -> None:
    release = threading.Event()

    def items() -> Iterator[bytes]:
        yield from FILES
        release.wait(30)

    with open_images(items(), 8, 2) as batches:
        next(batches)
    release.set()


def test_a_close_ends_a_thread_that_waits_for_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    release, waits = threading.Event(), threading.Event()
    taken, raised = list[int](), list[str]()
    next_batch = StreamedBatches.__next__

    def watched(self: StreamedBatches) -> Any:
        if len(taken) == 2:
            waits.set()
        return next_batch(self)

    def items() -> Iterator[bytes]:
        yield from FILES
        release.wait(30)

    def consume() -> None:
        try:
            taken.extend(len(batch.ids) for batch in batches)
        except UserError as error:
            raised.append(str(error))

    monkeypatch.setattr(StreamedBatches, "__next__", watched)
    with open_images(items(), 8, 2) as batches:
        consumer = threading.Thread(target=consume)
        consumer.start()
        assert waits.wait(10)
    consumer.join(10)
    assert not consumer.is_alive()
    assert sum(taken) == 6
    assert len(raised) == 1  # the one behind would open a generator again
    release.set()


def peak_mib(source: str, n: int) -> float:
    """The most memory of a process that loads n images; `source`: an expression for its items."""
    program = (
        "import re\n"
        "from tests import making\n"
        "from wallclock.loader.images import open_images\n"
        f"n = sum(len(batch.ids) for batch in open_images({source}, 8))\n"
        # Not ru_maxrss, which a child begins with its parent's.
        "print(n, *re.findall(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read()))\n"
    )
    done = run_python("-c", program)
    count, peak_kib = map(int, done.stdout.split())
    assert count == n
    return peak_kib / 1024


@pytest.mark.slow
def test_memory_is_flat() -> None:
    """100,000 items from a generator: no more memory than 5,000."""
    few, many = (
        peak_mib(f"(bytes(making.jpeg(48, 40)) for _ in range({n}))", n) for n in (5_000, 100_000)
    )
    assert many - few < 20


@pytest.mark.slow
@pytest.mark.parametrize("n_groups", [1, 20])
def test_a_tables_bytes_are_not_kept(n_groups: int, tmp_path: Path) -> None:
    """A table of 240 MB, also in one row group, takes no more memory than one of 80 MB."""
    image = making.jpeg(48, 40)
    rows = [image + bytes(40_000 - len(image))] * 200
    peaks = []
    for times in (10, 30):
        path = tmp_path / f"{times}.parquet"
        table = pa.table({"image": pa.array(rows * times, pa.binary())})
        size = -(-len(table) // n_groups)
        pq.write_table(table, path, size, compression="none", use_dictionary=False)
        peaks.append(peak_mib(repr(str(path)), len(table)))
    assert peaks[1] - peaks[0] < 60


def write_tar(path: Path, first: int, n: int, mode: str = "w") -> None:
    members = list[tuple[str, bytes]]()
    for number in range(first, first + n):
        name, image = f"train/{number:04}", FILES[number % len(FILES)]
        members += [(f"{name}.cls", b"%d" % number), (f"{name}.jpg", image)]
        members += [(f"{name}.json", b'{"n": %d}' % number), (f"{name}.txt", "häuser".encode())]
    path.write_bytes(making.tar(members, mode))


def test_names_of_shards() -> None:
    assert expand("a-{08..11}.tar") == ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]
    assert expand("{0..1}-{0..1}.tar") == ["0-0.tar", "0-1.tar", "1-0.tar", "1-1.tar"]
    assert expand("plain.tar") == ["plain.tar"]


def test_tars_are_streamed_and_divided_among_ranks(tmp_path: Path) -> None:
    for shard in range(4):
        write_tar(tmp_path / f"train-{shard}.tar", 5 * shard, 5)
    name = str(tmp_path / "train-{0..3}.tar")
    with open_images(name, 8, 7) as batches:
        (first, *_) = everything = list(batches)
    assert [label for batch in everything for label in batch.labels] == list(range(20))
    assert first.ids[0] == "train/0000"
    assert first.items[3] == {
        "id": "train/0003",
        "image": FILES[3],
        "label": 3,
        "json": {"n": 3},
        "txt": "häuser",
    }
    seen = []
    for rank in range(3):
        with open_images(name, 8, 7, shard=(rank, 3), shuffle=4) as batches:
            seen.append([label for batch in batches for label in batch.labels])
    assert sorted(label for labels in seen for label in labels) == list(range(20))
    assert sorted(map(len, seen)) == [5, 5, 10]
    with pytest.raises(UserError, match="4 shards for 5 ranks"):
        open_images(name, shard=(0, 5))


def test_compressed_and_damaged_tars(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar.gz", 0, 6, "w:gz")
    with open_images(tmp_path / "a.tar.gz", 8) as batches:
        assert labels_of(batches) == [list(range(6))]
    whole = gzip.decompress((tmp_path / "a.tar.gz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        *_, before, hurt = tar.getmembers()[:4]
    at = hurt.offset
    no_header = whole[:at] + b"\1" + whole[at + 1 :]
    damaged = {"cut": whole[:3000], "none": b"no tar" * 200, "members": whole[:at]}
    for name, data in (damaged | {"header": no_header, "two": whole * 2}).items():
        path = tmp_path / f"{name}.tar"
        last = f"behind {before.name}" if name in ("members", "header") else ""
        for packed in (data, gzip.compress(data)):  # whatever it is called
            path.write_bytes(packed)
            with pytest.raises(UserError, match=rf"{name}\.tar: .*{last}; is it a whole tar\?"):
                list(open_images(path, 8))
    with pytest.raises(UserError, match=r"gone\.tar: .*No such file"):
        list(open_images(tmp_path / "gone.tar", 8))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Of each kind 5 shards of 1 to 9 items; between those of a tar lies what is skipped."""
    folder, names = tmp_path_factory.mktemp("shards"), dict[str, list[str]]()
    for shard, n in enumerate([4, 1, 9, 3, 7]):
        labels = [10 * shard + at for at in range(n)]
        images = [making.jpeg(8, 8) if label % 7 else b"damaged" for label in labels]
        table = pa.table({"image": images, "label": labels, "id": [*map(str, labels)]})
        pq.write_table(table, folder / f"{shard}.parquet", row_group_size=2)
        with pa.ipc.new_file(folder / f"{shard}.arrow", table.schema) as file:
            file.write_table(table, 2)
        members = list[tuple[str, bytes]]()
        for label, image in zip(labels, images, strict=True):
            members += [(f"{label}.jpg", image), (f"{label}.cls", b"%d" % label)]
            members.append((f"notes-{label}.pdf", b""))
        (folder / f"{shard}.tar").write_bytes(making.tar(members))
        for kind in ("parquet", "arrow", "tar"):
            names.setdefault(kind, []).append(f"{folder}/{shard}.{kind}")
    return names


@given(
    kind=st.sampled_from(["parquet", "arrow", "tar"]),
    batch=st.integers(1, 6),
    shuffle=st.sampled_from([0, 1, 3, 40]),
    ranks=st.sampled_from([(0, 1), (0, 2), (1, 2)]),
    drop_last=st.booleans(),
    stop=st.integers(0, 30),
    by=st.integers(0, 1),
)
def test_shards_are_resumed_anywhere(
    shards: dict[str, list[str]],
    kind: str,
    batch: int,
    shuffle: int,
    ranks: tuple[int, int],
    drop_last: bool,
    stop: int,
    by: int,
) -> None:
    """What follows is the same to the last name that is skipped, also by another rank's state."""

    def opened(rank: int) -> Any:
        options: dict[str, Any] = {"shuffle": shuffle, "drop_last": drop_last, "epochs": 2}
        return open_images(shards[kind], 4, batch, shard=(rank, ranks[1]), workers=1, **options)

    def taken(batches: Any) -> list[Any]:
        return [(one.ids, one.labels, one.failures, [*one.skipped]) for one in batches]

    rank, states = ranks[0], list[Any]()
    with opened(rank) as batches:
        whole = taken(batches)
    stop = max(0, min(stop, len(whole) - 1))
    for one in (rank, by % ranks[1]):
        with opened(one) as batches:
            taken(islice(batches, stop))
            states.append(json.loads(json.dumps(batches.state_dict())))
    states.append({**states[1], "items": 0, "shard": 0, "row": 0})
    rests = []
    for state in states:
        with opened(rank) as batches:
            batches.load_state_dict(state)
            rests.append(taken(batches))
    assert rests[0] == whole[stop:]
    assert rests[1] == rests[2]


@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_shards_before_a_state_are_not_read(kind: str, tmp_path: Path) -> None:
    names = [tmp_path / f"{shard}.{kind}" for shard in range(3)]
    for shard, name in enumerate(names):
        if kind == "tar":
            write_tar(name, 100 * shard, 100)
            continue
        rows = range(100 * shard, 100 * shard + 100)
        table = pa.table({"image": [FILES[at % len(FILES)] for at in rows], "label": rows})
        pq.write_table(table, name, row_group_size=50, compression="none")
    with open_images(names, 8, 10, shuffle=2) as batches:
        before = [label for labels in labels_of(islice(batches, 26)) for label in labels]
        state, rest = batches.state_dict(), labels_of(batches)
    first, second, last = dict.fromkeys(label // 100 for label in before)
    names[first].write_bytes(b"damaged")
    names[second].unlink()
    if kind == "parquet":  # the last one's first row group
        data = names[last].read_bytes()
        names[last].write_bytes(data[:4] + bytes(len(data) // 3) + data[4 + len(data) // 3 :])
    with open_images(names, 8, 10, shuffle=2) as batches:
        batches.load_state_dict(state)
        assert labels_of(batches) == rest
