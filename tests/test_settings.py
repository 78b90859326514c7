"""From a command line to settings: the article's flags, the names, one line for every mistake."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

import experiments
from wallclock.errors import UserError
from wallclock.run.plan import Settings
from wallclock.settings import CONF, check, check_names, resolve, translate

ALL = ",".join(experiments.ORDER)
QUICK = ",".join(experiments.QUICK)


def composed(*arguments: str) -> Settings:
    """What a command line resolves to."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return resolve(compose("config", overrides=translate(arguments)))


class TestTranslate:
    @pytest.mark.parametrize(
        ("arguments", "overrides"),
        [
            ("", []),
            ("--n 100000 --experiment all", ["n=100000", f"experiment=[{ALL}]"]),
            ("--n 100000 --experiment serial,t4,opt", ["n=100000", "experiment=[serial,t4,opt]"]),
            ("--experiment=serial --n=5", ["experiment=[serial]", "n=5"]),
            ("--quick", ["profile=quick", f"experiment=[{QUICK}]"]),
            ("--quick --experiment all", ["profile=quick", f"experiment=[{ALL}]"]),
            ("--quick experiment=[cpu]", ["profile=quick", "experiment=[cpu]"]),
            ("--experiment serial,all", [f"experiment=[{ALL}]"]),
            ("recipe.batch_size=8 --n 4 seed=1", ["recipe.batch_size=8", "n=4", "seed=1"]),
            ("model=null", ["model='null'"]),
            ("model=dinov2-small", ["model=dinov2-small"]),
            ("out=/tmp/x", ["out='/tmp/x'"]),
            ("+out=x", ["+out='x'"]),
            ("out='x'", ["out='x'"]),
        ],
    )
    def test_the_articles_flags(self, arguments: str, overrides: list[str]) -> None:
        assert translate(arguments.split()) == overrides

    @pytest.mark.parametrize(
        ("arguments", "translated"),
        [
            ("--cfg job", ["--cfg", "job"]),
            ("--n 4 --cfg job seed=1", ["--cfg", "job", "n=4", "seed=1"]),
            ("seed=1 -c job --resolve", ["-c", "job", "--resolve", "seed=1"]),
            ("--help", ["--help"]),
            ("--multirun seed=1,2 out=a,b", ["--multirun", "seed=1,2", "out=a,b"]),
            ("-m recipe=baseline,cpu", ["-m", "recipe=baseline,cpu"]),
        ],
    )
    def test_hydras_own_flags_stay(self, arguments: str, translated: list[str]) -> None:
        assert translate(arguments.split()) == translated

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--n"],
            ["--experiment"],
            ["--n", "--quick"],
            ["--experiment", "--cfg"],
            ["--n", "seed=1"],
        ],
    )
    def test_a_flag_without_its_value(self, arguments: list[str]) -> None:
        with pytest.raises(UserError, match=f"{arguments[0]} needs a value, for example"):
            translate(arguments)

    @settings(max_examples=100, deadline=None)
    @given(
        st.text(
            st.characters(exclude_characters="\0$", exclude_categories=["Cs"]),
            min_size=1,
            max_size=20,
        )
    )
    def test_any_path_arrives_as_it_was_typed(self, name: str) -> None:
        path = f"/tmp/{name}"
        parsed = OmegaConf.to_container(self.only(translate([f"corpus.path={path}"])[0]))
        assert parsed == {"corpus": {"kind": "x", "path": path}}

    @staticmethod
    def only(override: str) -> Any:
        value = OverridesParser.create().parse_override(override).value()
        return OmegaConf.create({"corpus": {"kind": "x", "path": value}})


@pytest.mark.parametrize(
    ("typo", "line"),
    [
        ("--experiment seriall", r"no experiment is called 'seriall'; did you mean serial.*\?"),
        (
            "--experiment serial,decoder",
            r"no experiment is called 'decoder'; did you mean decoders",
        ),
        ("experiment=[serial,cpus]", r"no experiment is called 'cpus'; did you mean cpu"),
        (
            "recipe=baselin",
            r"no recipe is called 'baselin'; did you mean baseline\? \(all: baseline, cpu, fast, gpu_decode, optimized\)",  # noqa: E501
        ),
        ("recipe.decoder=turbo", r"no decoder is called 'turbo'; did you mean turbojpeg"),
        ("recipe.resizer=openvc", r"no resizer is called 'openvc'; did you mean opencv"),
        ("corpus=folders", r"no corpus is called 'folders'; did you mean folder"),
        ("corpus.path=/images", r"corpus.path is a setting of corpus=folder; add that"),
        (
            "corpus=folder corpus.image_set=smal_256",
            r"no corpus.image_set is called 'smal_256'; did you mean small_256",
        ),
        ("model=dinov2", r"no model is called 'dinov2'; did you mean dinov2-small"),
        ("profile=quik", r"no profile is called 'quik'; did you mean quick"),
        ("device=gpu", r"no device is called 'gpu'"),
        ("page_cache=hot", r"no page_cache is called 'hot'; valid: cold, warm"),
        ("nn=3", r"there is no setting 'nn'; did you mean n\?"),
        (
            "recipe.batchsize=3",
            r"there is no setting 'recipe.batchsize'; did you mean recipe.batch_size",
        ),
        ("corpus.pat=x", r"there is no setting 'corpus.pat'; did you mean corpus.path"),
        ("zzzzzz=1", r"there is no setting 'zzzzzz'; `--cfg job` shows all settings"),
        ("--n many", r"n=many: give a whole number of at least 1"),
        ("--n 0", r"n=0: give a whole number of at least 1"),
        ("repeats=2.5", r"repeats=2.5: give a whole number"),
        ("seed=abc", r"seed=abc: give a whole number"),
        ("max_failures=-1", r"max_failures=-1: give a whole number of at least 0"),
        ("recipe.batch_size=0", r"recipe.batch_size=0: a batch holds at least one image"),
        ("recipe.batch_size=abc", r"recipe.batch_size=abc: give a whole number"),
        ("recipe.workers=true", r"recipe.workers=True: give a whole number"),
        ("model.service_ms=x", r"model.service_ms=x: give a number"),
        ("corpus.seed=-3", r"corpus.seed=-3: give a whole number of at least 0"),
        (
            "corpus.progressive_share=1.5",
            r"corpus.progressive_share=1.5: a share lies between 0 and 1",
        ),
        ("corpus.progressive_share=x", r"corpus.progressive_share=x: give a number"),
        ("corpus.limits=3", r"corpus.limits=3: it has settings of its own: max_pixels"),
        ("experiment.serial.images.original=x", r"images.original=x: give a whole number"),
        ("out=", r"out=: give a folder"),
    ],
)
def test_a_typo_is_one_line_with_the_nearest_names(typo: str, line: str) -> None:
    with pytest.raises(UserError, match=line) as caught:
        check(translate(typo.split()))
    assert "\n" not in str(caught.value)


def test_names_are_checked_in_sweeps_too() -> None:
    check_names(translate(["--multirun", "recipe=baseline,optimized"]))
    with pytest.raises(UserError, match="no recipe is called 'optimised'; did you mean optimized"):
        check_names(translate(["--multirun", "recipe=baseline,optimised"]))


def test_experiments_run_in_the_houses_order() -> None:
    assert tuple(composed("--experiment", "cpu,serial,profiler").experiments) == (
        "profiler",
        "serial",
        "cpu",
    )
    assert tuple(composed().experiments) == experiments.ORDER
    assert tuple(composed("--experiment", "all").experiments) == experiments.ORDER
    assert tuple(composed("--quick").experiments) == tuple(
        name for name in experiments.ORDER if name in QUICK
    )


@pytest.mark.parametrize(
    "path", sorted((CONF / "experiment").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_experiment_composes_and_its_file_names_its_command(path: Path) -> None:
    name = path.stem
    first, second = path.read_text(encoding="utf-8").splitlines()[:2]
    assert first == f"# @package experiment.{name}"
    command = re.fullmatch(r"# python code/main\.py (.*)", second)
    assert command is not None, second
    assert tuple(composed(*command[1].split()).experiments) == (name,)
    assert name in (*experiments.ORDER, *experiments.ON_REQUEST)
    assert experiments.load(name).TABLES


def test_every_experiment_has_a_module_and_a_file() -> None:
    assert {path.stem for path in (CONF / "experiment").glob("*.yaml")} == {
        *experiments.ORDER,
        *experiments.ON_REQUEST,
    }


class TestThePapersSettings:
    """What the write-up says that it ran."""

    def test_recipes(self) -> None:
        baseline, optimized, cpu = (
            composed(f"recipe={name}", "device=cpu").recipe
            for name in ("baseline", "optimized", "cpu")
        )
        shared = ("decoder", "resizer", "workers", "batch_size", "dtype", "sink")
        assert [getattr(baseline, name) for name in shared] == [
            "pil",
            "pil",
            4,
            32,
            "fp32",
            "parquet",
        ]
        assert [getattr(optimized, name) for name in shared] == [
            "turbojpeg",
            "opencv",
            8,
            64,
            "fp16",
            "parquet",
        ]
        assert [getattr(cpu, name) for name in shared] == ["pil", "pil", 0, 1, "fp32", "parquet"]
        assert (cpu.torch_threads, cpu.device, cpu.engine) == (1, "cpu", "serial")
        assert (baseline.engine, baseline.interpolation, optimized.interpolation) == (
            "dataloader",
            "bilinear",
            "linear",
        )

    def test_experiments(self) -> None:
        made = composed("device=cpu")
        serial, decoders = made.experiments["serial"], made.experiments["decoders"]
        assert serial["images"] == {"small_256": 10_000, "original": 5_000}
        assert [(choice["decoder"], choice["resizer"]) for choice in serial["recipes"]] == [
            *(("pil", "pil"), ("opencv", "opencv"), ("turbojpeg", "opencv"))
        ]
        assert decoders["images"] == {"small_256": 2_000, "original": 2_000}
        assert decoders["decoders"] == ["pil", "opencv", "turbojpeg", "simplejpeg"]
        assert (made.repeats, made.n, dict(made.cap), made.page_cache) == (5, None, {}, "warm")

    def test_model(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("HF_ENDPOINT", "HF_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        model = composed("device=cpu").model
        assert (model.hub_id, model.input_px, model.dim, model.attention) == (
            "facebook/dinov2-small",
            224,
            384,
            "sdpa",
        )
        assert re.fullmatch(r"[0-9a-f]{40}", model.revision)
        assert model.weights == "random"

    @pytest.mark.parametrize("name", ["HF_ENDPOINT", "HF_TOKEN"])
    def test_weights_are_pretrained_where_a_hub_is_configured(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(name, "http://localhost")
        assert composed("device=cpu").model.weights == "pretrained"
        assert composed("device=cpu", "model.weights=random").model.weights == "random"


def test_auto_device_is_resolved_once_for_all() -> None:
    made = composed("--experiment", "cpu")
    assert made.device in ("cpu", "cuda")
    assert made.recipe.device == made.device
    assert made.experiments["cpu"]["recipe"].device == "cpu"


def test_paths_are_relative_to_the_checkout() -> None:
    made = composed("out=somewhere", "figures=/elsewhere")
    assert made.out == CONF.parent / "somewhere"
    assert made.figures == Path("/elsewhere")
    assert made.runs == CONF.parent / "somewhere" / "runs"
