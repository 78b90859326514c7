"""From a command line to settings: flags, names, ranges, and one line for every mistake."""

import re
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from experiments import contents
from harness.spec import Recipe, Settings
from paper.settings import CONF, load, translate
from tests.conftest import ROOT
from wallclock import machine
from wallclock.constraints import OneOf
from wallclock.errors import UserError
from wallclock.recipe import INTERPOLATIONS
from wallclock.stages import resize

ALL = f"experiment=[{','.join(contents.ORDER)}]"
QUICK = f"experiment=[{','.join(contents.QUICK)}]"


def loaded(arguments: str) -> Settings:
    """The settings of a command line, which names an experiment or gives an option of one."""
    names = re.findall(r"experiment\.(\w+)", arguments) or ["serial"]
    default = [] if re.search("experiment[ =]|quick", arguments) else ["--experiment", names[0]]
    return load(translate([*default, *arguments.split()]))


def refusal(arguments: str) -> str:
    with pytest.raises(UserError) as caught:
        loaded(arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "overrides"),
    [
        ("", [ALL]),
        ("--n 100000 --experiment all", ["n=100000", ALL]),
        ("--n 100000 --experiment serial,t4,opt", ["n=100000", "experiment=[serial,t4,opt]"]),
        ("--experiment=serial --n=5", ["n=5", "experiment=[serial]"]),
        ("--quick", ["profile=quick", QUICK]),
        ("profile=quick", ["profile=quick", QUICK]),
        ("--quick --experiment all", ["profile=quick", ALL]),
        ("--quick experiment=[cpu]", ["profile=quick", "experiment=[cpu]"]),
        ("--experiment serial,all", [ALL]),
        ("recipe.batch_size=8 --n 4 seed=1", ["n=4", "recipe.batch_size=8", "seed=1", ALL]),
        ("model=null", ["model='null'", ALL]),
        ("out=/tmp/x", ["out='/tmp/x'", ALL]),
        ("+out=x", ["+out='x'", ALL]),
        ("out='x'", ["out='x'", ALL]),
        ("--n 4 --cfg job seed=1", ["--cfg", "job", "n=4", "seed=1", ALL]),
        ("seed=1 -c job --resolve", ["-c", "job", "--resolve", "seed=1", ALL]),
        ("--multirun seed=1,2 out=a,b", ["--multirun", "seed=1,2", "out=a,b", ALL]),
    ],
)
def test_translate(arguments: str, overrides: list[str]) -> None:
    assert translate(arguments.split()) == overrides


@hypothesis_settings(max_examples=100)
@given(
    st.text(
        st.characters(exclude_characters="\0$", exclude_categories=["Cs"]), min_size=1, max_size=20
    )
)
def test_any_path_is_kept(name: str) -> None:
    path = f"/tmp/{name}"
    override = translate([f"corpus.path={path}"])[0]
    value = OverridesParser.create().parse_override(override).value()
    assert OmegaConf.to_container(OmegaConf.create({"path": value})) == {"path": path}


#: What is typed -> a part of the line that refuses it.
REFUSALS = (ROOT / "tests" / "refusals.txt").read_text("utf-8").splitlines()[1:]
CHOICE_FIELDS = [
    name
    for name, hint in get_type_hints(Recipe, include_extras=True).items()
    if get_origin(hint) is Annotated and any(isinstance(c, OneOf) for c in get_args(hint)[1:])
]


class TestRefused:
    """Every setting that cannot be honoured is one line."""

    @pytest.mark.parametrize("name", [*CHOICE_FIELDS, "decoder", "interpolation", "dtype"])
    def test_choices_of_recipes(self, name: str) -> None:
        line = refusal(f"recipe.{name}=nonsense")
        assert line.startswith(f"no recipe.{name}")
        assert " is called 'nonsense'; " in line
        assert getattr(Recipe(""), name) in line

    @pytest.mark.parametrize("refused", REFUSALS)
    def test_one_line(self, refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine, "gpus", list)
        arguments, line = refused.split(" -> ")
        assert line in refusal(arguments)


def test_choices_are_those_of_the_stages() -> None:
    """The names that a recipe may have are those that the stages can make."""
    for resizer, names in INTERPOLATIONS.items():
        for name in names:
            resize.make(resizer, name, 8)
        with pytest.raises(UserError, match=re.escape(", ".join(sorted(names)))):
            resize.make(resizer, "zzz", 8)
    assert set(INTERPOLATIONS) == set(resize.RESIZERS)


def test_serial_engine_ignores_workers_with_a_note() -> None:
    settings = loaded("--experiment t4 experiment.t4.recipe.engine=serial device=cpu")
    recipe = settings.experiments["t4"]["recipe"]
    assert (recipe.engine, recipe.workers) == ("serial", 0)
    (note,) = settings.notes
    assert note == "experiment.t4.recipe.workers=4 is not used: engine=serial has no workers"


def test_quick_repeats() -> None:
    """An experiment's own number of repeats counts in the quick profile, unless one is given."""
    for arguments, repeats in (("", 3), ("--quick", 1), ("--quick repeats=5", None)):
        settings = loaded(f"--experiment cpu device=cpu {arguments}")
        assert settings.repeats_of.get("cpu") == repeats
        assert "quick_repeats" not in settings.experiments["cpu"]


def test_experiments_run_in_order() -> None:
    assert list(loaded("--experiment cpu,serial,profiler").experiments) == [
        *("profiler", "serial", "cpu")
    ]
    assert tuple(load(translate([])).experiments) == contents.ORDER
    assert set(loaded("--quick").experiments) == set(contents.QUICK)


class TestThePapersSettings:
    """The settings that the paper states."""

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("baseline", ("pil", "pil", "bilinear", "dataloader", 4, 32, "fp32", "parquet", 0)),
            (
                "optimized",
                ("turbojpeg", "opencv", "linear", "dataloader", 8, 64, "fp16", "parquet", 0),
            ),
            ("cpu", ("pil", "pil", "bilinear", "serial", 0, 1, "fp32", "parquet", 1)),
        ],
    )
    def test_recipes(self, name: str, values: tuple[object, ...]) -> None:
        recipe = loaded(f"recipe={name} device=cpu").recipe
        assert values == (
            *(recipe.decoder, recipe.resizer, recipe.interpolation, recipe.engine, recipe.workers),
            *(recipe.batch_size, recipe.dtype, recipe.sink, recipe.torch_threads),
        )
        assert (recipe.device, recipe.name) == ("cpu", name)

    def test_experiments(self) -> None:
        settings = loaded("--experiment serial,decoders device=cpu profile=long")
        serial, decoders = settings.experiments["serial"], settings.experiments["decoders"]
        assert serial["images"] == {"small_256": 10_000, "original": 5_000}
        assert [(choice["decoder"], choice["resizer"]) for choice in serial["recipes"]] == [
            *(("pil", "pil"), ("opencv", "opencv"), ("turbojpeg", "opencv"))
        ]
        assert decoders["images"] == {"small_256": 2_000, "original": 2_000}
        assert decoders["decoders"] == [], "every decoder that runs on a CPU"
        assert (settings.repeats, settings.n, settings.page_cache) == (5, None, "warm")
        assert set(settings.max_images.values()) == {None}

    def test_model(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("HF_ENDPOINT", "HF_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        model = loaded("device=cpu").model
        assert (model.hub_id, model.input_px, model.dim) == ("facebook/dinov2-small", 224, 384)
        assert re.fullmatch(r"[0-9a-f]{40}", model.revision)
        assert model.weights == "random"

    @pytest.mark.parametrize("name", ["HF_ENDPOINT", "HF_TOKEN"])
    def test_pretrained_with_a_hub(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(name, "http://localhost")
        assert loaded("device=cpu").model.weights == "pretrained"
        assert loaded("device=cpu model.weights=random").model.weights == "random"

    def test_pretrained_where_the_cache_has_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("HF_ENDPOINT", "HF_TOKEN", "HF_HUB_CACHE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        model = loaded("device=cpu").model
        folder = tmp_path / "hub" / "models--facebook--dinov2-small" / "snapshots" / model.revision
        folder.mkdir(parents=True)
        assert model.weights == loaded("device=cpu").model.weights == "random"
        (folder / "model.safetensors").touch()
        assert loaded("device=cpu").model.weights == "pretrained"

    @pytest.mark.slow
    def test_papers_images_where_they_are(self, tmp_path: Path) -> None:
        """The article's command line takes what `make data` has brought, unless told otherwise."""
        words = f"--n 100000 --experiment all out={tmp_path}"
        assert loaded(words).corpus.kind == "synthetic"
        folder = tmp_path / "corpora" / "abo-0123456789ab"
        folder.mkdir(parents=True)
        (folder / "small_256-first70-seed0.journal").touch()
        assert loaded(words).corpus.kind == "synthetic", "a download that was stopped"
        (folder / "small_256-first70-seed0.csv").touch()
        assert loaded(words).corpus.kind == "abo"
        for others in ("corpus=synthetic", "corpus.seed=1", "--quick"):
            assert loaded(f"{words} {others}").corpus.kind == "synthetic"


def test_paths_are_relative_to_the_checkout() -> None:
    settings = loaded("out=somewhere figures=/elsewhere")
    assert settings.runs == CONF.parent / "somewhere" / "runs"
    assert settings.figures == Path("/elsewhere")
