"""What a pass takes of a GPU's memory, and whether torch's allocator asked the driver for more."""

from typing import Any

#: Value → torch's count, which only grows.
_COUNTS = {
    "gpu_segments_allocated": "segment.all.allocated",
    "gpu_alloc_retries": "num_alloc_retries",
}


class GpuMemory:
    """Memory of the GPU from `begin` on; of any other device there are no values.

    Args:
        device: that the stages run on, as they say themselves: cuda, cpu, or null for a mock.
    """

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"
        self._before: dict[str, int] = {}

    def begin(self) -> None:
        """Count from now."""
        if self._on_gpu:
            import torch

            torch.cuda.reset_peak_memory_stats()
            self._before = _counts()

    def values(self) -> dict[str, Any]:
        """Since `begin`, for the record.

        `peak_gpu_mem_gib`: what the driver counts, which includes the context, the code of kernels
        and other processes; it is read once, as segments stay until they are given back. In it,
        `peak_gpu_reserved_gib`, of segments, and `peak_gpu_allocated_gib`, of the tensors in them.
        `gpu_segments_allocated`: segments that the allocator got from the driver, which takes a
        millisecond each and waits for the device: 0 after a warm-up.
        `gpu_alloc_retries`: how often it had none left and gave its unused ones back.
        """
        if not self._on_gpu:
            return {}
        import torch

        free, total = torch.cuda.mem_get_info()
        n_bytes = {
            "peak_gpu_mem_gib": total - free,
            "peak_gpu_reserved_gib": torch.cuda.max_memory_reserved(),
            "peak_gpu_allocated_gib": torch.cuda.max_memory_allocated(),
        }
        gib = {name: used / 2**30 for name, used in n_bytes.items()}
        return gib | {name: count - self._before[name] for name, count in _counts().items()}


def _counts() -> dict[str, int]:
    import torch

    stats = torch.cuda.memory_stats()
    # A key is absent until the allocator has done anything.
    return {name: int(stats.get(key, 0)) for name, key in _COUNTS.items()}
