"""The examples run, on tiny inputs; their committed measurement holds what is claimed of it."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from examples import gpu, replace_dataloader, train, trainers
from harness.table import read_table
from tests import making
from tests.conftest import ON_PATH, ROOT, run_command

N = 20
REFERENCE = ROOT / "data" / "reference" / "amd-epyc-2-cores" / "benchmarks" / "examples.csv"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for index in range(N):
        (tmp_path / f"{index:02}.jpg").write_bytes(making.jpeg(300, 260, index))
    return tmp_path


def test_both_loops_give_the_same_batches(folder: Path) -> None:
    paths = [str(path) for path in sorted(folder.glob("*.jpg"))]
    theirs = torch.cat([*replace_dataloader.before(paths, workers=0)])
    ours = torch.cat([*replace_dataloader.after(paths, workers=1)])
    assert ours.shape == theirs.shape == (N, 3, 224, 224)
    assert float((ours - theirs).abs().mean()) < 0.02


@pytest.fixture
def classes(folder: Path) -> Path:
    """The same images in three folders."""
    for index, path in enumerate(sorted(folder.glob("*.jpg"))):
        (folder / str(index % 3)).mkdir(exist_ok=True)
        path.rename(folder / str(index % 3) / path.name)
    return folder


def test_training_goes_on_where_it_stopped(classes: Path, capsys: Any) -> None:
    """With the same batches, the same weights and the optimizer's momentum: the same losses."""
    torch.manual_seed(0)
    train.main(str(classes))
    uninterrupted = capsys.readouterr().out
    assert uninterrupted.count("positions") == 9
    (classes / "checkpoint.pt").unlink()
    torch.manual_seed(0)
    train.main(str(classes), stop_after=4)
    train.main(str(classes))
    assert capsys.readouterr().out == uninterrupted


@pytest.mark.slow
def test_training_over_two_ranks(classes: Path) -> None:
    """As many batches of each; run again, there is nothing left."""
    command = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    for n in (2 * 3 * (N // 2 // 8), 0):
        words = ("-m", "examples.train", str(classes))
        done = run_command(*command, *words, env={**os.environ, **ON_PATH})
        assert done.stdout.count("positions") == n, done.stderr


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_batches_reach_the_device(folder: Path, device: str, capsys: Any) -> None:
    gpu.main(str(folder), device)
    assert capsys.readouterr().out == f"{N} ({N}, 384)\n"


@pytest.mark.slow
def test_networks_of_transformers(folder: Path, tmp_path_factory: Any, capsys: Any) -> None:
    import transformers

    from examples import clip_search, transformers_processor

    saved = str(tmp_path_factory.mktemp("vit"))
    small: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    small |= {"intermediate_size": 32, "image_size": 64, "patch_size": 32}
    transformers.ViTModel(transformers.ViTConfig(**small)).save_pretrained(saved)
    processor = transformers.ViTImageProcessor(size={"height": 64, "width": 64})
    processor.save_pretrained(saved)
    transformers_processor.main(str(folder), saved)
    assert capsys.readouterr().out == f"({N}, 32)\n"
    paths = [str(path) for path in sorted(folder.glob("*.jpg"))]
    theirs, ours = (
        torch.cat([*loop(paths, processor)])
        for loop in (transformers_processor.before, transformers_processor.after)
    )
    assert float((ours - theirs).abs().mean()) < 0.02
    saved = str(tmp_path_factory.mktemp("clip"))
    text = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    clip = transformers.CLIPConfig(text_config=text, vision_config=small, projection_dim=16)
    transformers.CLIPModel(clip).save_pretrained(saved)
    clip_search.main(str(folder), paths[7], saved)
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "1.000  07.jpg"
    assert len(others) == 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the trainers' own
@pytest.mark.parametrize("name", [*trainers.TRAINERS])
def test_trainers(name: str, classes: Path, capsys: Any) -> None:
    pytest.importorskip("accelerate" if name == "transformers" else name)  # Trainer needs it
    trainers.main(str(classes), name)
    assert f"{name}: loss " in capsys.readouterr().out


def test_both_sides_augment_alike(folder: Path) -> None:
    """Pillow's own functions, as torchvision calls them, and one matrix: nearly the same pixels."""
    paths = [str(path) for path in sorted(folder.glob("*.jpg"))]
    theirs, ours = (torch.cat([*loop(paths, workers=1)]) for loop in (train.before, train.after))
    assert float((ours - theirs).abs().mean()) < 0.1


def test_the_committed_measurement() -> None:
    """Every loop of README is faster, on both image sets; DataLoader's by as much as is claimed."""
    rows = read_table(REFERENCE)
    least = {"small_256": 3, "original": 5}
    quoted = {"replace_dataloader", "transformers_processor", "train"}
    chosen = [row for row in rows if row["example"] in quoted]
    assert len(chosen) == 2 * len(quoted)
    for row in chosen:
        replaced = row["example"] == "replace_dataloader"
        assert row["speedup"] >= (least[row["images"]] if replaced else 1)
        assert not row["psnr_p5_db"] or row["psnr_p5_db"] >= 40
