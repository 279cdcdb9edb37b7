import pytest

from pipeline.config import RunConfig, load_config
from pipeline.run import ROOT

CONFIGS = sorted((ROOT / "pipeline" / "configs").glob("*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_committed_configurations_are_right(path):
    assert isinstance(load_config(path), RunConfig)


def test_default_configuration_says_every_value(tmp_path):
    written = load_config(ROOT / "pipeline" / "configs" / "default.toml").to_dict()
    assert written["training"]["clip_norm"] == 1.0
    assert written["package"]["golden_texts"][0] == "Licensed under the Apache License, Version 2.0"


def test_identity_is_all_but_how_often_the_state_is_written(tmp_path):
    path = tmp_path / "a.toml"
    identities = []
    for text in ("", "[training]\ncheckpoint_steps = 7\n", "[training]\nseed = 7\n"):
        path.write_text(f'name = "a"\n{text}')
        identities.append(load_config(path).identity())
    assert identities[0] == identities[1] != identities[2]


def test_all_mistakes_are_told_at_once(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(
        'name = "a/b"\ntypo = 1\n[training]\nepochs = "ten"\nlearning_rate = true\n'
        "[model]\nwidth = 3\n[package]\ngolden_texts = [1]\n"
    )
    with pytest.raises(ValueError, match=r"bad\.toml has mistakes") as error:
        load_config(path)
    lines = str(error.value).splitlines()[1:]
    assert [line.split()[0] for line in lines] == [
        "typo",
        "training.epochs",
        "training.learning_rate",
        "model.width",
        "package.golden_texts",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\n", "name is missing"),
        ('name = "a"\ndata = 3\n', "data must be a table; got 3"),
        ('name = ".."\n', "name must be 1 to 100 letters"),
        ('name = "a/b"\n', "name must be 1 to 100 letters"),
        (f'name = "{"a" * 101}"\n', "name must be 1 to 100 letters"),
        ('name = "a"\n[training]\nschedule = "step"\n', "one of cosine, linear, inverse_sqrt; got 'step'"),
        ('name = "a"\n[training]\nbatch_tokens = 10\n', "must hold one text of model.max_len = 192 tokens; got 10"),
        ('name = "a"\n[model]\nmax_len = 2\n', "model.max_len must be at least 3, .*; got 2"),
        ('name = "a"\n[training]\nlearning_rate = nan\n', "learning_rate must be a finite number above 0; got nan"),
        ('name = "a"\n[training]\nclip_norm = inf\n', "clip_norm must be a finite number above 0; got inf"),
        ('name = "a"\n[training]\nseed = 4294967296\n', "seed must be at most 4294967295; got 4294967296"),
        ('name = "a"\n[training]\ncheckpoint_steps = 0\n', "checkpoint_steps must be at least 1; got 0"),
        ('name = "a"\n[training]\nthreads = 0\n', "threads must be at least 1; got 0"),
        ('name = "a"\n[training]\nprecision = "fp16"\n', "must be one of float32, bfloat16; got 'fp16'"),
        ('name = "a"\n[training]\nlabel_smoothing = 1.0\n', r"must lie in \[0, 1\); got 1.0"),
        ('name = "a"\n[training]\ndevice = "tpu"\n', "must be cpu or cuda; got 'tpu'"),
        ("name = \n", "can't be read"),
        ('name = "a"\n[data]\nvalidation_share = 0\n', r"data.validation_share must lie in \(0, 0.5\]; got 0.0"),
        ('name = "a"\n[data]\ntest_share = 0.51\n', r"data.test_share must lie in \(0, 0.5\]; got 0.51"),
        ('name = "a"\n[data]\ntest_share = nan\n', r"data.test_share must lie in \(0, 0.5\]; got nan"),
        ('name = "a"\n[data]\ntest_share = 0.5\nvalidation_share = 0.5\n', "must be below 1; got 1.0"),
        ('name = "a"\n[data]\nmax_bad_share = 1.0\n', r"data.max_bad_share must lie in \[0, 1\); got 1.0"),
        ('name = "a"\n[data]\nlicence = " "\n', "data.licence must not be blank"),
        ('name = "a"\n[data]\ntrain = [""]\n', r"data.train must hold paths; got \[''\]"),
        ('name = "a"\n[data]\ntrain = "a.csv"\n', "data.train must be a list of strings; got 'a.csv'"),
        ('name = "a"\n[data]\ntest = ["a.csv"]\n', "data.test is for own files, so it needs data.train"),
        ('name = "a"\n[data]\nlabel = "x"\n', "data.label is for own files, so it needs data.train"),
    ],
)
def test_each_rule_is_held(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_config(path)


def test_missing_file_and_folder_are_readable_errors(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(ValueError, match="can't be read"):
        load_config(tmp_path)


def test_paths_are_relative_to_the_file(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text('name = "a"\n[data]\ntrain = ["a.csv", "/b.csv"]\nvalidation = ["c/d.csv"]\ntest = ["../e.csv"]\n')
    data = load_config(path).data
    assert data.train == (str(tmp_path / "a.csv"), "/b.csv")
    assert data.validation == (str(tmp_path / "c" / "d.csv"),)
    assert data.test == (str(tmp_path / ".." / "e.csv"),)
