"""The configuration file that ``gpulease demo`` starts JupyterHub with."""

from gpulease.demo.hub import configure

configure(get_config())  # type: ignore[name-defined]  # noqa: F821  # given by traitlets
