"""One start of a job: is OUT this job's, what is missing, and then the run."""

import os
import random
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from rich.console import Console

from wallclock.constraints import build
from wallclock.errors import UserError
from wallclock.fetch.filesystems import is_url, place_of
from wallclock.job import columns, integrity
from wallclock.job.dataset import FAILURES, ROWS, Dataset, open_existing
from wallclock.job.identity import check_reusable, check_same, identity_of
from wallclock.job.index import Reused
from wallclock.job.listing import Items, list_items
from wallclock.job.place.process import Place, ThisProcess, print_line
from wallclock.job.plan import Job, Plan
from wallclock.job.run import Tally
from wallclock.job.settings import RANDOM, JobSettings, Resolved
from wallclock.job.stores import at
from wallclock.job.versions import changes, described, versions
from wallclock.machine import SWAPPING, swapped_bytes
from wallclock.outside import printable, text_of, without_secrets
from wallclock.progress import format_duration, format_rate

#: Of a source without a vector, the images that the last line shows.
_SHOWN = 2
#: Images among which one of another host is looked for.
_LOOKED_AT = 32


@dataclass(frozen=True)
class Outcome:
    """What a start of a job did.

    `counts`: vectors, failures, images that were not reached, skipped files and parts, earlier
    starts included. While any was not reached, the dataset is not complete: run the job again.
    """

    out: Path | str
    counts: Mapping[str, int]
    tally: Tally
    #: Images per second that the estimate said; None for a job that is not estimated.
    expected: float | None = None
    #: To and from the machine's swap while it ran.
    swapped_bytes: int = 0
    #: A warning that is repeated at the end.
    warning: str = ""

    @property
    def unreached(self) -> int:
        """The images that have neither a vector nor a failure."""
        return self.counts.get("unreached", 0)  # which older datasets do not have

    def __str__(self) -> str:
        said = self._counts_and_rate()
        if self.unreached:
            last = self.tally.last_unreached
            said += f"; {self.unreached:,} not reached: run again (the last: {last})"
        return f"{said}; {self.warning}" if self.warning else said

    def _counts_and_rate(self) -> str:
        tally, counts = self.tally, self.counts
        skipped = counts.get("skipped", 0)  # which older datasets do not have
        plural = "" if counts["parts"] == 1 else "s"
        contents = (
            f"{counts['vectors']:,} vectors, {counts['failures']:,} failed, {skipped:,} skipped"
            f" in {counts['parts']:,} part{plural} of {self.out}"
        )
        if counts["failures"]:
            contents += f", the reasons in {self.out}/{FAILURES}"
        if not tally.wall_s:
            return f"complete already: {contents}"
        notes = []
        if tally.unread:
            notes.append(f"{tally.unread:,} unchanged")
        if tally.copied:
            notes.append(f"{tally.copied:,} duplicates")
        if tally.handed_over:
            notes.append(f"{tally.handed_over:,} decoded by libjpeg-turbo")
        rate = (tally.images + tally.n_failed) / tally.wall_s
        notes += [format_rate(rate), f"limited by the {tally.limited_by}"]
        if self.expected and not tally.unread:  # it is about images that are read
            notes.append(f"{rate / self.expected - 1:+.0%} of the estimated rate")
        if self.swapped_bytes >= SWAPPING:
            swapped = f"{self.swapped_bytes / 1e6:,.0f} MB to and from swap"
            notes.append(f"{swapped}: set fewer workers= or a smaller batch=")
        return f"{contents}: {format_duration(tally.wall_s)}, {', '.join(notes)}"


def embed(
    src: str | Path, out: str | Path, *, console: Console | None = None, **values: Any
) -> Outcome:
    """Embed the images of a source into Parquet files in a folder or a bucket.

    Call it again after whatever stopped it: finished parts are kept.

    Args:
        src: a folder, a list (docs/embed.md has its formats), s3://bucket/prefix, or a list's URL.
        out: a folder or s3://bucket/prefix: new, or of an earlier run of the same job.
        console: where progress goes; by default nowhere.
        values: the fields of `JobSettings`.

    Raises:
        UserError: the request cannot be met, or no image gave a vector; one line that says why and
            what to do.
    """
    settings, console = build(JobSettings, values, ""), console or Console(quiet=True)
    if not settings.cluster:
        here = nullcontext(ThisProcess(settings, console))
        return _run(str(src), out, settings, here, console)
    from wallclock.job.place import cluster

    cluster.check_installed(settings.cluster)
    if settings.cluster.startswith("ray://"):
        outcome: Outcome = cluster.on_head(settings.cluster, embed, str(src), str(out), values)
        return outcome
    return _run(str(src), out, settings, cluster.connected(settings, console), console)


def _run(
    src: str,
    out: str | Path,
    settings: JobSettings,
    opening: AbstractContextManager[Place],
    console: Console,
) -> Outcome:
    """List the images and open OUT; then, where the job runs, embed them."""
    items = list_items(src, settings.limit, settings.limits())
    columns.check(items)
    _print_others(items, console)
    store = at(out)
    with store.locked(partial(print_line, console)):
        dataset = open_existing(store) or Dataset(store)
        earlier = _earlier(settings)
        if settings.cluster:  # Ray takes seconds to start, and only then is the device known
            early = _identity(settings, settings.resolved("cpu"), items, earlier, False)
            del early["recipe"]
            _check(dataset, None, early, settings)
        with opening as place:
            return _run_there(place, src, items, dataset, earlier, settings, console)


def _run_there(
    place: Place,
    src: str,
    items: Items,
    dataset: Dataset,
    earlier: Dataset | None,
    settings: JobSettings,
    console: Console,
) -> Outcome:
    """Plan what is missing, and embed it."""
    resolved = settings.resolved(place.device)
    for note in resolved.notes:
        print_line(console, note)
    identity = _identity(settings, resolved, items, earlier, place.across)
    _check(dataset, earlier, identity, settings)
    if dataset.about:
        for line in integrity.remove_damaged(dataset):
            print_line(console, line)
        counts = dataset.about.get("counts", {})
        if dataset.about["complete"] and len(dataset.committed()) == counts.get("parts"):
            return _with_vectors(Outcome(dataset.out, counts, Tally()), items, dataset)
    dataset.remove_leftovers()
    made = [dataset, earlier] if earlier else [dataset]
    for changed in filter(None, (changes(each, versions()) for each in made)):
        print_line(console, changed)
    job = _job(settings, resolved, items, dataset, earlier, place)
    plan = job.plan()
    weights, labels = place.prepare(job, plan)
    identity = {**identity, "weights": weights}
    _check(dataset, earlier, identity, settings)
    carried = () if items.carried is None else items.carried.schema
    about = _about(src, settings, identity, labels, carried) | described(*made)
    return _with_vectors(_embed_missing(place, job, plan, about), items, dataset)


def _identity(
    settings: JobSettings, resolved: Resolved, items: Items, earlier: Dataset | None, across: bool
) -> dict[str, Any]:
    """What the job's vectors depend on, but the weights: these are opened later."""
    return {
        "images": items.digest(),
        "n": len(items),
        **columns.identity_of(items),
        **identity_of(settings, resolved.recipe, resolved.model),
        "deduplicate": settings.deduplicate and (across or "in each shard"),
        "reuse": earlier.about["identity"]["images"] if earlier else "",
    }


def _check(
    dataset: Dataset, earlier: Dataset | None, identity: Mapping[str, Any], settings: JobSettings
) -> None:
    """Raise UserError where OUT is another job's, or the earlier dataset of another model."""
    if dataset.about:
        check_same(dataset, identity, settings.model)
    if earlier:
        check_reusable(earlier, identity)


def _job(
    settings: JobSettings,
    resolved: Resolved,
    items: Items,
    dataset: Dataset,
    earlier: Dataset | None,
    place: Place,
) -> Job:
    keep = bool(settings.keep)
    return Job(
        items,
        dataset,
        resolved.model,
        resolved.recipe,
        settings.shard,
        earlier=Reused.open(earlier, items, reads_all=keep) if earlier else None,
        deduplicate=settings.deduplicate,
        across=place.across,
        keep=keep,
        max_failures=settings.max_failures,
        limits=replace(settings.limits(items.origin), known=_known(dataset, items)),
    )


def _known(dataset: Dataset, items: Items) -> str:
    """The URL of an image that an earlier run has read; empty where the images are files.

    Where there is none, of another host than the first image's: that one may be gone.
    """
    rng = random.SystemRandom()  # of the next run another one
    positions = rng.sample(range(len(items)), min(len(items), _LOOKED_AT))
    for number in rng.sample(there := dataset.committed(), len(there)):
        if len(ids := dataset.rows(number, ["id"])["id"]):
            positions = [pc.index(items.ids, rng.choice(ids)).as_py()]
            break
    sources = [items[position] for position in positions]
    urls = [str(source.where) for source in sources if source.remote]
    first = str(items[0].where).split("/")[2:3]  # the host, also of what is no URL
    return next((url for url in urls if url.split("/")[2:3] != first), urls[0] if urls else "")


def _embed_missing(place: Place, job: Job, plan: Plan, about: Mapping[str, Any]) -> Outcome:
    """Run the plan, between two descriptions of the dataset."""
    dataset = job.dataset
    dataset.describe({**about, "complete": False})
    swapped = swapped_bytes()
    tally, expected = place.run(job, plan)
    swapped = swapped_bytes() - swapped
    dataset.remove_leftovers()  # also what other processes left meanwhile
    counts = {**dataset.counts(), "skipped": len(job.items.others)}
    counts["unreached"] = len(job.items) - counts["vectors"] - counts["failures"]
    dataset.describe({**about, "complete": not counts["unreached"], "counts": counts})
    warning = RANDOM if job.model.weights == "random" else ""
    return Outcome(dataset.out, counts, tally, expected, swapped, warning)


def _with_vectors(outcome: Outcome, items: Items, dataset: Dataset) -> Outcome:
    """The outcome. Raises UserError: the run reached nothing, or no image has a vector."""
    tally, n = outcome.tally, outcome.unreached
    reached_nothing = not tally.images + tally.n_failed + tally.unread
    if n and reached_nothing and (tally.gave_up or not outcome.counts["vectors"]):
        last = tally.last_unreached
        raise UserError(f"nothing was reached, as {last}; {n:,} not reached: run again")
    if outcome.counts["vectors"] or n:
        return outcome
    first = [items[position] for position in range(min(len(items), _SHOWN))]
    places = [text_of(x.where) if isinstance(x.where, str) else x.id for x in first]
    shown = ", ".join(map(printable, places))
    failures = (row for number in dataset.committed() for row in dataset.failures(number))
    reason = printable(next(failures)["reason"])
    is_windows = any("\\" in place and "://" not in place for place in places)
    fix = "; write / for the backslashes of Windows" if is_windows else ""
    raise UserError(f"no image has a vector, the first: {shown} ({reason}); {outcome}{fix}")


def _print_others(items: Items, console: Console) -> None:
    """Print what is skipped beside the images of the source: at most three names."""
    if not items.others:
        return
    n, names = len(items.others), ", ".join(printable(name, 80) for name in items.others[:3])
    are, more = ("file is no image" if n == 1 else "files are no images"), ", …" if n > 3 else ""
    print_line(console, f"skipped: {n:,} {are}: {names}{more}")


def _earlier(settings: JobSettings) -> Dataset | None:
    """The dataset to take vectors from, if there is to be one."""
    if not settings.reuse:
        return None
    dataset = open_existing(settings.reuse)
    if dataset is None:
        raise UserError(f"reuse={settings.reuse}: there is no dataset")
    for fault in integrity.faults(dataset, integrity.check_sizes):
        raise fault
    return dataset


def _about(
    src: str,
    settings: JobSettings,
    identity: Mapping[str, Any],
    ran: Mapping[str, str],
    carried: Iterable[Any],
) -> dict[str, Any]:
    vector = f"fixed_size_list<float>[{identity['model']['dim']}]"
    place = place_of(src)
    return {
        "source": place if is_url(place) else os.path.realpath(os.path.expanduser(place)),
        "has_whole_source": not is_url(place) or without_secrets(place) == place,
        "settings": asdict(settings),
        "identity": identity,
        "ran": dict(ran),
        "schema": {"vector": vector, **{item.name: str(item.type) for item in (*ROWS, *carried)}},
    }
