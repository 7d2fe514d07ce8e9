"""The hub of `gpulease demo`, as a configuration file: `jupyterhub -f demo_jupyterhub_config.py`.

`gpulease demo` is the easier way: it finds free ports and ends everything by itself. This file is
here to start from: copy it, change it. People: student, student2, instructor, admin, each with the
own name as password. Everything is written to ./gpulease-demo.
"""

from pathlib import Path

from gpulease.demo.hub import configure
from gpulease.demo.options import DemoOptions, Ports

options = DemoOptions(
    directory=Path("gpulease-demo").resolve(),
    ports=Ports(public=8000, hub=8081, proxy=8001, service=9980),
    # Simulated on a machine without an NVIDIA driver.
    gpus=2,
    memory=16.0,
    # Seconds without use until the warning, and from the warning to the end.
    idle=60.0,
    warning=20.0,
    warm_up=5.0,
)
options.directory.mkdir(exist_ok=True)

c = get_config()
configure(c, options)
