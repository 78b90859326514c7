"""The settings of a job that decide its recipe."""

from wallclock.job.settings import JobSettings
from wallclock.recipe import FAST


def test_settings_win_over_the_recipe() -> None:
    recipe = JobSettings(batch=7, dtype="bf16", workers=3).resolved_recipe("cpu")
    assert (recipe.batch_size, recipe.dtype, recipe.workers) == (7, "bf16", 3)
    assert JobSettings().resolved_recipe("cpu").batch_size == FAST.batch_size


def test_fast_uses_fp16_on_a_gpu_only() -> None:
    dtypes = [JobSettings().resolved_recipe(device).dtype for device in ("cpu", "cuda")]
    assert dtypes == ["fp32", "fp16"]
    assert JobSettings(recipe="pillow").resolved_recipe("cuda").dtype == "fp32"
