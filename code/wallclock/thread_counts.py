"""Thread counts of the libraries: set, then read back."""

from wallclock.spec import Recipe


def set_threads(recipe: Recipe, *, uses_torch: bool) -> dict[str, int]:
    """Set OpenCV to one thread and, if it runs, torch to the recipe's; return what they report.

    OpenCV's own pool would otherwise resize one image on all cores, which flatters a serial run
    and competes with the workers of a parallel one.
    """
    import cv2

    cv2.setNumThreads(1)
    counts = {"opencv_threads": cv2.getNumThreads()}
    if uses_torch:
        import torch

        if recipe.torch_threads:
            torch.set_num_threads(recipe.torch_threads)
        counts["torch_threads"] = torch.get_num_threads()
    return counts
