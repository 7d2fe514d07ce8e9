"""The ready configuration files load, and name what exists."""

from pathlib import Path

import pytest
from jupyterhub.app import JupyterHub
from traitlets.config.loader import PyFileConfigLoader

READY = Path(__file__).parents[2] / "hub_config"


@pytest.mark.parametrize("name", [file.name for file in sorted(READY.glob("*.py"))])
def test_a_ready_file_gives_a_hub_with_gpulease(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPULEASE_SERVICE_TOKEN", "for this test only")
    config = PyFileConfigLoader(str(READY / name)).load_config()
    hub = JupyterHub(config=config)
    assert [service["name"] for service in hub.services] == ["gpulease"]
    assert hub.spawner_class.__name__.endswith("Spawner")
    assert "custom:gpulease:request" in hub.custom_scopes
