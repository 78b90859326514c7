"""What experiments need to turn the settings into cells."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.corpora import ProgressHook, copies, prepare
from harness.corpora import manifest as manifests
from harness.corpora.manifest import Manifest
from harness.spec import CorpusSpec, Recipe, Settings, Slice
from wallclock.errors import UserError


class Plan:
    """Gives experiments their corpus slices, recipes and common parameters."""

    def __init__(self, settings: Settings, progress: ProgressHook) -> None:
        self.settings = settings
        self._progress = progress
        #: The folder of the prepared corpora, and the list of each slice.
        self.cache = settings.out / "corpora"
        self.prepared: dict[tuple[str, bool, str, int], tuple[Manifest, Slice]] = {}

    def count(self, image_set: str, n: int) -> int:
        """How many images of a set an experiment that asks for `n` gets, within the limits."""
        limits = [n, self.settings.n, self.settings.max_images.get(image_set)]
        return min(limit for limit in limits if limit is not None)

    def slices(self, sizes: Mapping[str, int]) -> dict[str, Slice]:
        """Image set → its prepared slice, of those in `sizes` that this corpus has."""
        names = self._available_sets(sizes)
        return {name: self.slice(name, self.count(name, sizes[name])) for name in names}

    def first_slice(self, sizes: Mapping[str, int]) -> Slice:
        """The slice of the first image set that this corpus has; the others are not prepared."""
        name = self._available_sets(sizes)[0]
        return self.slice(name, self.count(name, sizes[name]))

    def slice(self, image_set: str, n: int) -> Slice:
        """The first `n` images of a set.

        Raises UserError: the corpus cannot be prepared, or too many of its images are damaged.
        """
        return self._slice(self.settings.corpus, image_set, n)

    def sample(self, sizes: Mapping[str, int]) -> Slice:
        """Like `first_slice`; of a folder, a seeded sample instead of the first by name."""
        name = self._available_sets(sizes)[0]
        spec = replace(self.settings.corpus, sample=True)
        return self._slice(spec, name, self.count(name, sizes[name]))

    def folder_slice(self, path: str, n: int, *, sample: bool = False) -> Slice:
        """Up to `n` images of a folder besides the configured corpus. Raises as `slice` does.

        By name, or as `sample`: names gather images of a kind, and a short pass would be of few
        kinds.
        """
        limits = self.settings.corpus.limits
        spec = CorpusSpec("folder", path=path, sample=sample, limits=limits)
        return self._slice(spec, spec.image_set, self.count(spec.image_set, n))

    def thumbnails(self, corpus: Slice) -> Slice:
        """The same images with thumbnails (`harness.corpora.copies`) in the place of large ones."""
        folder = self.cache / f"copies-{copies.KIND}-{corpus.digest[:12]}"
        copies.make(self.manifest(corpus), folder, self._progress)
        made = self.folder_slice(str(folder), corpus.n)
        storage = f"files:{copies.KIND}"
        return replace(made, kind=corpus.kind, image_set=corpus.image_set, storage=storage)

    def manifest(self, corpus: Slice) -> Manifest:
        """The list of a prepared slice."""
        return next(manifest for manifest, slice_ in self.prepared.values() if slice_ == corpus)

    def recipe(self, **changes: Any) -> Recipe:
        """The configured recipe with some choices replaced."""
        return replace(self.settings.recipe, **changes)

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of every timed cell."""
        names = ("page_cache", "max_failures", "allocator")
        return {name: getattr(self.settings, name) for name in names}

    def repeats(self, experiment: str) -> range:
        """The repeats of each of an experiment's timed cells."""
        return range(self.settings.repeats_of.get(experiment, self.settings.repeats))

    def _available_sets(self, sizes: Mapping[str, int]) -> list[str]:
        available = prepare.image_sets(self.settings.corpus)
        names = [name for name in sizes if name in available]
        if not names:
            raise UserError(
                f"corpus={self.settings.corpus.kind} has the image set {' and '.join(available)}, "
                f"the experiment takes {' or '.join(sizes)}; set corpus.image_set"
            )
        return names

    def _slice(self, spec: CorpusSpec, image_set: str, n: int) -> Slice:
        key = (spec.path, spec.sample, image_set, n)
        if key not in self.prepared:
            corpus = prepare.prepare(spec, image_set, n, self.cache, self._progress)
            manifest = manifests.load(Path(corpus.manifest)).head(corpus.n)
            failed = manifest.failed
            limit = self.settings.max_failures
            if len(failed) > limit:
                refused = manifest.kind == "abo" and failed[0].failed_stage == "read"
                raise UserError(
                    f"{len(failed)} of {len(manifest.items)} images cannot be used, over "
                    f"max_failures={limit}; the first, {failed[0].id}: {failed[0].failed_reason}"
                    f"{'; corpus.verify=true asks the store for them once more' if refused else ''}"
                )
            self.prepared[key] = (manifest, corpus)
        return self.prepared[key][1]
