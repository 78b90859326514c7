"""One start of a job: is OUT this job's, what is missing, and then the run."""

import os
import random
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow.compute as pc
from rich.console import Console

from wallclock.constraints import build
from wallclock.errors import UserError
from wallclock.fetch.urls import is_url, place_of
from wallclock.job.dataset import FAILURES, UNREACHED, Dataset, open_existing, remove_damaged
from wallclock.job.identity import changes, check_same, check_source, described, identity_of
from wallclock.job.items import Items, check_columns
from wallclock.job.listing import keep, list_items
from wallclock.job.part import ROWS, Part
from wallclock.job.plan import Growth, Job, Plan, find_growth
from wallclock.job.run import Tally
from wallclock.job.runner.process import ThisProcess, print_line
from wallclock.job.settings import RANDOM, JobSettings
from wallclock.job.stores.s3 import at
from wallclock.outside import printable, text_of, without_secrets
from wallclock.progress import format_duration, format_rate

if TYPE_CHECKING:
    from wallclock.job.runner.cluster import Cluster

_Runner: TypeAlias = "ThisProcess | Cluster"
#: Of a source without a vector, the images that the last line shows.
_SHOWN = 2
#: Images among which one of another host is looked for.
_LOOKED_AT = 32


@dataclass(frozen=True)
class Outcome:
    """What a start of a job did. While an image was not reached, the dataset is not complete.

    `counts`: vectors, failures, images that were not reached, skipped files, parts, and of all
    images those that are gone from the source; earlier starts included.
    """

    out: Path | str
    counts: Mapping[str, int]
    tally: Tally
    #: Images per second that the estimate said; None for a job that is not estimated.
    expected: float | None = None
    #: A warning that is repeated at the end.
    warning: str = ""

    @property
    def unreached(self) -> int:
        """The images that have neither a vector nor a failure."""
        return self.counts["unreached"]

    def __str__(self) -> str:
        said, last = self._counts_and_rate(), self.tally.last_unreached
        if self.unreached:
            said += f"; {self.unreached:,} not reached: run again (the last: {last})"
        if gone := self.counts["gone"]:
            said += f"; gone from SRC: {gone:,} (prune=true removes them)"
        return f"{said}; {self.warning}" if self.warning else said

    def _counts_and_rate(self) -> str:
        tally, counts = self.tally, self.counts
        contents = "{vectors:,} vectors, {failures:,} failed, {skipped:,} skipped in {parts:,} part"
        plural = "" if counts["parts"] == 1 else "s"
        contents = f"{contents.format(**counts)}{plural} of {self.out}"
        if counts["failures"]:
            contents += f", the reasons in {self.out}/{FAILURES}"
        if not tally.wall_s:
            return f"complete already: {contents}"
        notes = []
        if tally.copied:
            notes.append(f"{tally.copied:,} duplicates")
        if tally.fallbacks:
            notes.append(f"{tally.fallbacks:,} decoded by libjpeg-turbo or Pillow")
        notes.append(format_rate((tally.images + tally.n_failed) / tally.wall_s))
        if self.expected:
            notes[-1] += f" (estimated: {format_rate(self.expected)})"
        notes.append("; ".join(filter(None, (f"bottleneck: {tally.limited_by}", tally.faster))))
        return f"{contents}: {format_duration(tally.wall_s)}, {', '.join(notes)}"


def embed(
    src: str | Path, out: str | Path, *, console: Console | None = None, **values: Any
) -> Outcome:
    """`wallclock.embed`, where all extras are installed."""
    settings, console = build(JobSettings, values, ""), console or Console(quiet=True)
    opening: AbstractContextManager[_Runner]
    if settings.cluster:
        from wallclock.job.runner import cluster

        cluster.check(settings.cluster)
        opening = cluster.connected(settings, console)
    else:
        opening = nullcontext(ThisProcess(settings, console))
    src, store = str(src), at(out)
    items = list_items(src, settings.limit, settings.limits(), store)
    check_columns(items)
    _print_others(items, console)
    if settings.prune and not items.is_whole:
        why = "with limit= it is not known" if settings.limit else "not all of SRC can be read"
        raise UserError(f"prune=true: {why}, so what is gone cannot be told; leave it out")
    with store.locked():
        dataset = open_existing(store) or Dataset(store)
        if dataset.about:
            check_source(dataset, _source(src), settings.limit, items.carried.schema)
        with opening as runner:
            return _run(runner, src, items, dataset, settings, console)


def _run(
    runner: _Runner,
    src: str,
    items: Items,
    dataset: Dataset,
    settings: JobSettings,
    console: Console,
) -> Outcome:
    """Find what is missing, and embed it."""
    say = partial(print_line, console)
    recipe, model, notes = settings.resolved(runner.device)
    if settings.runtime == "auto" and dataset.about:  # the first start has decided
        before = dataset.about["identity"].get("recipe", {}).get("runtime", "pytorch")
        recipe = replace(recipe, runtime=before)
    for note in notes:
        say(note)
    identity = {"carries": items.carried.column_names}
    identity |= identity_of(settings, recipe, model)
    check_same(dataset, identity, settings.model)
    for line in remove_damaged(dataset):
        say(line)
    dataset.store.remove_leftovers()
    growth = find_growth(dataset, items, settings.shard)
    if growth.changed or growth.gone or (growth.edition and growth.edition.first):
        removed = ", and removed" if settings.prune and growth.gone else ""
        found = f"{growth.new:,} new and {growth.changed:,} changed images"
        say(f"{found}, {growth.n_gone:,} are gone{removed}")
    job = Job(
        growth.items,
        dataset,
        model,
        recipe,
        growth.parts,
        growth.replaced,
        growth.runs,
        settings.deduplicate,
        settings.max_failures,
        replace(settings.limits(items.origin), known=_known(dataset, items)),
    )
    plan, about = job.plan(), dataset.about
    is_complete = about.get("complete", False) and not plan.missing
    if is_complete:
        about = {**about, "settings": asdict(settings)}
    else:
        if changed := changes(dataset):
            say(changed)
        job, weights, labels = runner.prepare(job, plan)
        identity |= identity_of(settings, job.recipe, model) | {"weights": weights}
        check_same(dataset, identity, settings.model)
        about = _about(src, settings, identity, labels, items) | described(dataset)
    is_complete = is_complete and not (settings.prune and growth.gone)
    dataset.describe({**about, "complete": is_complete}, first=not dataset.about)
    keep(dataset.store, items)
    outcome = _embed_missing(runner, job, plan, growth, about, prune=settings.prune)
    return _with_vectors(outcome, items, dataset)


def _known(dataset: Dataset, items: Items) -> str:
    """The URL of an image that an earlier run has read, else of another host than the first's."""
    if items.stream:
        return ""
    rng = random.SystemRandom()  # of the next run another one
    positions = rng.sample(range(len(items)), min(len(items), _LOOKED_AT))
    for number in rng.sample(there := dataset.committed(), len(there)):
        if len(ids := dataset.rows(number, ["id"])["id"]):
            at = pc.index(items.ids, rng.choice(ids)).as_py()
            positions = positions if at < 0 else [at]  # it may be gone
            break
    sources = [items[position] for position in positions]
    urls = [str(source.where) for source in sources if source.remote]
    first = str(items[0].where).split("/")[2:3]  # the host, also of what is no URL
    return next((url for url in urls if url.split("/")[2:3] != first), urls[0] if urls else "")


def _embed_missing(
    runner: _Runner, job: Job, plan: Plan, growth: Growth, about: Mapping[str, Any], *, prune: bool
) -> Outcome:
    dataset, empty = job.dataset, Part.empty(job.model.dim, job.items.carried)
    growth.begin(dataset, empty)
    tally, expected = runner.run(job, plan) if plan.missing else (Tally(), None)
    if prune:
        growth.prune(dataset, empty)
    dataset.store.remove_leftovers()  # also what other processes left meanwhile
    counts = {**dataset.counts(), "skipped": len(job.items.others)}
    counts |= {"unreached": _count_unreached(job, growth), "gone": 0 if prune else growth.n_gone}
    dataset.describe({**about, "complete": not counts["unreached"], "counts": counts})
    warning = RANDOM if job.model.weights == "random" else ""
    return Outcome(dataset.out, counts, tally, expected, warning)


def _count_unreached(job: Job, growth: Growth) -> int:
    """How many images that the source still has were not reached, or not made anew."""
    dataset, left = job.dataset, job.plan()
    n, there = left.size(*left.missing), {*dataset.committed()}
    for number in there.intersection(dataset.with_files(UNREACHED)).difference(left.missing):
        ids = {row["id"] for row in dataset.unreached(number)}
        gone = growth.gone[number].to_pylist() if number in growth.gone else ()
        n += len(ids.difference(gone))
    return n


def _with_vectors(outcome: Outcome, items: Items, dataset: Dataset) -> Outcome:
    """The outcome. Raises UserError: the run reached nothing, or no image has a vector."""
    tally, n = outcome.tally, outcome.unreached
    reached_nothing = not tally.images + tally.n_failed
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
    if not items.others:
        return
    n, names = len(items.others), ", ".join(printable(name, 80) for name in items.others[:3])
    what = "1 file is not an image" if n == 1 else f"{n:,} files are not images"
    print_line(console, f"skipped: {what}: {names}{', …' if n > 3 else ''}")


def _about(
    src: str,
    settings: JobSettings,
    identity: Mapping[str, Any],
    ran: Mapping[str, str],
    items: Items,
) -> dict[str, Any]:
    columns_of_part = (*ROWS, *items.carried.schema)
    vector = f"fixed_size_list<float>[{identity['model']['dim']}]"
    place, source = place_of(src), _source(src)
    return {
        "source": source,
        "has_whole_source": not is_url(place) or source == place,
        "settings": asdict(settings),
        "identity": identity,
        "ran": dict(ran),
        "schema": {"vector": vector, **{item.name: str(item.type) for item in columns_of_part}},
    }


def _source(src: str) -> str:
    """The real path of a source, or its URL without secrets."""
    place = place_of(src)
    return without_secrets(place) if is_url(place) else os.path.realpath(os.path.expanduser(place))
