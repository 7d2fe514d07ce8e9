"""A value that an option cannot have is refused by its name; the service makes its own secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulease.errors import GPULeaseError
from gpulease.service.settings import options
from gpulease.service.settings.application import GPULeaseService
from gpulease.service.settings.reading import size_option, web_address


@pytest.mark.parametrize(
    "given",
    [
        {"gpu_memory": "much"},
        {"park_limit": "some"},
        {"service_url": "ftp://127.0.0.1:1"},
        {"service_url": "http://127.0.0.1:99999"},
    ],
    ids=str,
)
def test_the_option_that_is_wrong_is_named(given: dict[str, str]) -> None:
    ((name, value),) = given.items()
    with pytest.raises(GPULeaseError) as refused:
        GPULeaseService(**given).options()
    assert refused.value.reason == "bad_option"
    assert refused.value.numbers == {"option": name}
    assert refused.value.sentence == f"{name} is {value!r}."


def test_a_pinned_policy_that_is_not_there_is_no_wrong_option() -> None:
    """The version before it stays in use; only a service that has none refuses to start."""
    file = "/no/such/policy.yaml"
    assert GPULeaseService(policy_file=file).options().policy_file == Path(file)


def test_a_configuration_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GPULeaseError, match=r"not-there\.py") as refused:
        GPULeaseService().initialize(["--config", str(tmp_path / "not-there.py")])
    assert (refused.value.reason, refused.value.numbers) == (
        "bad_option",
        {"option": "config_file"},
    )


def test_a_configuration_file_that_fails_is_not_passed_over(tmp_path: Path) -> None:
    broken = tmp_path / "config.py"
    broken.write_text("c.GPULeaseService.gpus = 1 / 0\n")
    with pytest.raises(GPULeaseError, match=r"line 1 of .*config\.py fails with ZeroDivisionError"):
        GPULeaseService().initialize(["--config", str(broken)])


def test_a_configuration_file_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "service.conf"
    file.write_text("c.GPULeaseService.gpus = 3\n")
    service = GPULeaseService()
    service.initialize(["--config", str(file), "--gpu-memory", "8GiB"])
    assert (service.gpus, service.gpu_memory) == (3, "8GiB")


@pytest.mark.parametrize("argv", [["--log-level", "nonsense"], ["--gpus", "two"]], ids=" ".join)
def test_a_value_that_an_option_cannot_have_ends_the_start(argv: list[str], capfd) -> None:
    with pytest.raises(SystemExit) as ended:
        GPULeaseService().initialize(argv)
    assert ended.value.code == 1
    assert argv[1] in capfd.readouterr().err


def test_a_size_is_read_in_bytes() -> None:
    assert size_option("park_limit", "2GiB") == 2 * 1024**3


@pytest.mark.parametrize("given", ["", "https://docs.example.org/gpu/", "http://wiki/page"])
def test_an_address_of_the_web_is_taken(given):
    assert web_address("docs_url", given) == given


@pytest.mark.parametrize("given", ["docs.example.org", "javascript:alert(1)", "https://", "/docs"])
def test_another_address_is_refused(given):
    with pytest.raises(GPULeaseError, match="docs_url"):
        web_address("docs_url", given)


def test_the_key_is_made_once_and_stays(tmp_path):
    first = options.read_or_make_key(tmp_path / "a.key")
    assert len(first) == 32
    assert options.read_or_make_key(tmp_path / "a.key") == first
    assert options.read_or_make_key(tmp_path / "b.key") != first
    assert (tmp_path / "a.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "not hex", "abcd"])
def test_a_file_that_holds_no_key_is_refused_and_kept(tmp_path, text):
    path = tmp_path / "a.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(GPULeaseError) as error:
        options.read_or_make_key(path)
    assert error.value.reason == "bad_key_file"
    assert path.read_text() == text
    assert not text or text not in str(error.value)


def test_a_key_that_others_can_read_is_refused(tmp_path):
    options.read_or_make_key(tmp_path / "a.key")
    (tmp_path / "a.key").chmod(0o644)
    with pytest.raises(GPULeaseError, match="0644"):
        options.read_or_make_key(tmp_path / "a.key")


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(GPULeaseError, match="No such file"):
        options.read_or_make_key(tmp_path / "none" / "a.key")


def test_it_lies_beside_the_database():
    assert options.key_path("sqlite:////srv/a.sqlite") == Path("/srv/a.sqlite.key")
    assert options.key_path("postgresql://me@host/name") == Path("gpulease.key")
