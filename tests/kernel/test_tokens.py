"""Tokens on the GPU: by name only, and an error for want of one says so."""

import pytest

from gpulease.errors import GPULeaseError
from gpulease.kernel.tokens import left_out, missing, parse_shared
from tests.kernel.parts import HomeKernel

GATED = (
    "401 Client Error. (Request ID: Root=1-67) Cannot access gated repo for url "
    "https://huggingface.co/meta/x/resolve/main/config.json. Access to model meta/x is restricted."
)


@pytest.mark.parametrize(
    ("ename", "evalue", "variable"),
    [
        ("GatedRepoError", GATED, "HF_TOKEN"),
        ("LocalTokenNotFoundError", "Token is required, but no token found. You need to provide a "
         "token or be logged in to Hugging Face with `hf auth login` or `huggingface_hub.login`.",
         "HF_TOKEN"),
        ("UsageError", "api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
         "WANDB_API_KEY"),
        ("OpenAIError", "The api_key client option must be set either by passing api_key to the "
         "client or by setting the OPENAI_API_KEY environment variable", "OPENAI_API_KEY"),
        ("OSError", "Could not find kaggle.json. Or use the environment method. See "
         "https://github.com/Kaggle/kaggle-api for authentication", "KAGGLE_KEY"),
        ("KeyError", "'HF_TOKEN'", "HF_TOKEN"),
    ],
)  # fmt: skip
def test_an_error_for_want_of_a_token_says_how_it_gets_there(
    ename: str, evalue: str, variable: str
) -> None:
    said = missing(ename, evalue, {variable: "x"}, ())
    assert f"%gpu config env {variable} takes" in said
    assert "is not set" in missing(ename, evalue, {}, ())
    assert missing(ename, evalue, {variable: "x"}, (variable,)) == ""  # it is there, and is wrong


@pytest.mark.parametrize(
    ("ename", "evalue"),
    [("KeyError", "'PATH'"), ("KeyError", "'HF_TOKEN is one of'"), ("RuntimeError", "got 401 rows"),
     ("ValueError", "MAX_TOKENS must be positive"), ("HTTPError", "404 huggingface.co"),
     ("NameError", "name 'HF_TOKEN' is not defined")],
)  # fmt: skip
def test_another_error_is_left_alone(ename: str, evalue: str) -> None:
    assert missing(ename, evalue, {"HF_TOKEN": "x"}, ()) == ""


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import os\nos.environ.get('COURSE_DATA')", ["COURSE_DATA"]),
        ("from os import getenv\nx = getenv('COURSE_DATA', '')", ["COURSE_DATA"]),
        ("os.environ.get('PATH'), os.environ.get('NEVER_SET'), {}.get('COURSE_DATA')", []),
        ("# os.environ.get('COURSE_DATA')", []),
        ("os.environ.get('JUPYTERHUB_USER'), os.environ.get('CUDA_VISIBLE_DEVICES')", []),
        ("os.environ.get(", []),
    ],
)
def test_variables_that_a_cell_asks_for_and_that_stay_here(source: str, names: list[str]) -> None:
    here = dict.fromkeys(("COURSE_DATA", "PATH", "JUPYTERHUB_USER", "CUDA_VISIBLE_DEVICES"), "x")
    assert left_out(source, here, ()) == names
    assert left_out(source, here, ("COURSE_DATA",)) == []


def test_a_variable_of_the_server_is_named_where_a_gpu_cell_misses_it(lent, tmp_path) -> None:
    kernel = lent.take(tmp_path / "k", {})
    kernel.run("import os; os.environ['COURSE_DATA'] = '/data'")
    kernel.connect()
    way = "%gpu config env COURSE_DATA"
    cell = kernel.run("%%gpu\nimport os\nos.environ.get('COURSE_DATA')")
    assert (cell.ok, way in cell.shown()) == (True, True)
    assert way not in kernel.run("%%gpu\nos.environ.get('COURSE_DATA')").shown(), "once"
    missed = kernel.run("%%gpu\nos.environ['COURSE_DATA']")
    assert way in missed.error + missed.traceback + missed.shown()
    assert kernel.run(way).ok
    assert kernel.run("%%gpu\nos.environ['COURSE_DATA']").result == "'/data'"
    lent.give_back(kernel, as_new=False)


@pytest.mark.parametrize("text", ["JUPYTERHUB_API_TOKEN", "GPULEASE_TOKEN", "PATH", "a b", "A=1"])
def test_only_tokens_that_are_no_hubs_can_be_named(text: str) -> None:
    with pytest.raises(GPULeaseError, match="HF_TOKEN,WANDB_API_KEY"):
        parse_shared(text)


def test_names_are_read_with_commas_between() -> None:
    assert parse_shared("HF_TOKEN, WANDB_API_KEY,HF_TOKEN") == ("HF_TOKEN", "WANDB_API_KEY")
    assert parse_shared("none") == parse_shared("") == ()


def test_a_token_goes_where_the_notebook_says(home: HomeKernel) -> None:
    home.run("import os\nos.environ['HF_TOKEN'] = 'hf-mine'")
    assert "%gpu config env HF_TOKEN takes" in home.run("%%gpu\nos.environ['HF_TOKEN']").traceback
    assert "tokens taken: HF_TOKEN" in home.run("%gpu config env HF_TOKEN").text()
    assert home.run("%%gpu\nos.environ['HF_TOKEN']").result == "'hf-mine'"
    home.run("%gpu config env none")
    assert home.run("%%gpu\nos.environ.get('HF_TOKEN')").ok
    assert home.run("%%gpu\n'HF_TOKEN' in os.environ").result == "False"
    assert home.run("os.environ['HF_TOKEN']").result == "'hf-mine'"
    assert "%gpu config env HF_TOKEN,WANDB_API_KEY" in home.run("%gpu config env PATH").traceback
