"""The images per second of a job in the steady state, from what an image takes in each part."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Pace:
    """Seconds of an image in the parts of a job, and who does them.

    `load_s`: a core's, until it is in its batch; `wait_s`: for the storage, no core's; `send_s`: a
    loader's, to another process; `copy_s`: to the device; `model_s`; `main_s`: the main thread's,
    beside these. `workers`: that load, 0 where the main thread does. `model_cores`: of the
    loaders' cores, those that the model takes.

    Loaders, one core each while there is one, and the main thread work at the same time. They draw
    on the same cores, and so does a model on the CPU: no more core seconds are spent in a second
    than there are cores. `harness.pipeline_model` is more general, and a test compares the two.
    """

    load_s: float
    model_s: float
    cores: int
    workers: int
    model_cores: int = 0
    wait_s: float = 0.0
    send_s: float = 0.0
    copy_s: float = 0.0
    main_s: float = 0.0

    def img_per_s(self) -> float:
        """The rate; infinite where nothing but waits costs anything."""
        if not self.load_s + self._step_s:
            return inf
        if not self.workers:
            return 1 / (self.load_s + self.wait_s + self._step_s)
        loader_s = max(self.load_s + self.wait_s, self.send_s)
        return min(1 / max(loader_s / self.workers, self._step_s), self._cores_rate())

    @property
    def _step_s(self) -> float:
        return self.copy_s + self.model_s + self.main_s

    def _cores_rate(self) -> float:
        """What the cores allow, less where a model on some of them has to wait for the last one.

        A forward pass of T threads waits for its slowest one, so that a loader on one of their T
        cores delays all of them. Where a core is shared in equal parts, an image takes F + L: its
        forward pass, and the part of its loading that gets no free core. Loaders with more to do
        than fits next to the pass (L > F) run concurrently with it: F + F, and F + L / k once that
        is longer, k of them.
        """
        work_s = self.load_s + self.send_s
        spent_s = work_s + self.main_s + self.model_s * self.model_cores
        rate = self.cores / spent_s if spent_s else inf
        if not self.model_cores:
            return rate
        left_s = max(0.0, work_s - (self.cores - self.model_cores) * self.model_s)
        delay_s = max(min(left_s, self.model_s), left_s / min(self.workers, self.cores))
        return min(rate, 1 / (self._step_s + delay_s))

    @property
    def loading_s(self) -> float:
        """Of an image, where all workers load at the same time and nothing else does."""
        return self.load_s / min(self.workers, self.cores)

    @property
    def model_limits(self) -> bool:
        """Whether the model sets the pace, and not the loaders."""
        if self.img_per_s() * max(self.loading_s, self.model_s) < 1 - 1e-9:  # the cores set it
            return self.model_s * self.model_cores >= self.load_s
        return self.model_s >= self.loading_s
