"""What was asked for, and what experiments need to turn it into cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wallclock.corpus import manifest as manifests
from wallclock.corpus import prepare
from wallclock.corpus.manifest import Manifest
from wallclock.errors import UserError
from wallclock.spec import CorpusSpec, ModelSpec, Recipe, Slice


@dataclass(frozen=True)
class Settings:
    """One invocation, resolved: no `auto` is left.

    `n` caps every experiment's images; `cap` does so per image set, for this kind of device.
    `repeats_of` overrides `repeats` for an experiment. `experiments` holds each selected experiment's
    own options, in running order. `seconds` is what a cell in steady state measures, at least;
    `longest` is the most images of a run of `scaling`. `cost` is what an hour of the device costs, and who says so.
    `only`: "data" stops when the corpus is on the disk. `export`: where a long run says what it is doing.
    """

    experiments: Mapping[str, Mapping[str, Any]]
    corpus: CorpusSpec
    model: ModelSpec
    recipe: Recipe
    device: str
    out: Path
    figures: Path
    repeats: int
    seed: int
    repeats_of: Mapping[str, int] = field(default_factory=dict)
    n: int | None = None
    cap: Mapping[str, int] = field(default_factory=dict)
    page_cache: str = "warm"
    allocator: str = "default"
    seconds: float = 3.0
    longest: int = 100_000
    max_failures: int = 1000
    cost: Mapping[str, Any] = field(default_factory=dict)
    only: str = "all"
    export: Path | None = None

    @property
    def runs(self) -> Path:
        """Where the records are."""
        return self.out / "runs"


class Plan:
    """Hands experiments their corpus slices, recipes and common parameters."""

    def __init__(self, settings: Settings, progress: prepare.Progress) -> None:
        self.settings = settings
        self._progress = progress
        self._manifests: dict[tuple[str, str, bool, str, int], tuple[Manifest, Slice]] = {}

    def count(self, image_set: str, n: int) -> int:
        """How many images of a set an experiment that wants `n` gets, after --n and the profile's cap."""
        limits = [n, self.settings.n, self.settings.cap.get(image_set)]
        return min(limit for limit in limits if limit is not None)

    def slices(self, wanted: Mapping[str, int]) -> dict[str, Slice]:
        """For each wanted image set that this corpus has: the slice, brought onto the disk."""
        return {
            name: self.slice(name, self.count(name, wanted[name])) for name in self._held(wanted)
        }

    def first_slice(self, wanted: Mapping[str, int]) -> Slice:
        """The slice of the first wanted image set that this corpus has; the others are not prepared."""
        name = self._held(wanted)[0]
        return self.slice(name, self.count(name, wanted[name]))

    def slice(self, image_set: str, n: int) -> Slice:
        """The first `n` images of a set.

        Raises:
            UserError: the corpus cannot be had, or too many of its images are damaged.
        """
        return self._slice(self.settings.corpus, image_set, n)

    def sample(self, wanted: Mapping[str, int]) -> Slice:
        """Like `first_slice`; of a folder, a seeded sample instead of the first by name."""
        name = self._held(wanted)[0]
        return self._slice(
            replace(self.settings.corpus, sample=True), name, self.count(name, wanted[name])
        )

    def _slice(self, spec: CorpusSpec, image_set: str, n: int) -> Slice:
        key = (spec.kind, spec.path, spec.sample, image_set, n)
        if key not in self._manifests:
            made = prepare.prepare(spec, image_set, n, self.cache, self._progress)
            manifest = manifests.load(Path(made.manifest)).first(made.n)
            self._check(manifest)
            self._manifests[key] = (manifest, made)
        return self._manifests[key][1]

    def folder_slice(self, path: str, n: int) -> Slice:
        """Up to `n` images of a folder beside the configured corpus, taken for originals. Raises as `slice` does."""
        spec = CorpusSpec("folder", path=path, limits=self.settings.corpus.limits)
        n = self.count(spec.image_set, n)
        return self._slice(spec, spec.image_set, n)

    def manifest(self, corpus: Slice) -> Manifest:
        """The list behind a slice that was handed out."""
        return next(manifest for manifest, made in self._manifests.values() if made == corpus)

    @property
    def cache(self) -> Path:
        """Where corpora are kept."""
        return self.settings.out / "corpora"

    def manifests(self) -> list[Manifest]:
        """Every corpus slice that was handed out."""
        return [manifest for manifest, _ in self._manifests.values()]

    def recipe(self, **changes: Any) -> Recipe:
        """The configured recipe with some choices replaced."""
        return replace(self.settings.recipe, **changes)

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of every timed cell."""
        settings = self.settings
        return {
            "page_cache": settings.page_cache,
            "max_failures": settings.max_failures,
            "allocator": settings.allocator,
        }

    def repeats(self, experiment: str) -> range:
        """The repeats of each of an experiment's timed cells."""
        return range(self.settings.repeats_of.get(experiment, self.settings.repeats))

    def _held(self, wanted: Mapping[str, int]) -> list[str]:
        held = prepare.image_sets(self.settings.corpus)
        found = [name for name in wanted if name in held]
        if not found:
            raise UserError(
                f"corpus={self.settings.corpus.kind} holds the image set {' and '.join(held)}, the experiment wants "
                f"{' or '.join(wanted)}; set corpus.image_set"
            )
        return found

    def _check(self, manifest: Manifest) -> None:
        failed = manifest.failed
        if len(failed) > self.settings.max_failures:
            refused = manifest.kind == "abo" and failed[0].failed_stage == "read"
            raise UserError(
                f"{len(failed)} of {len(manifest.items)} images cannot be used, over max_failures="
                f"{self.settings.max_failures}; the first, {failed[0].id}: {failed[0].failed_reason}"
                f"{'; corpus.verify=true asks the store for them once more' if refused else ''}"
            )
