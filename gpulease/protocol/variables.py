"""Which environment variables hold a secret, told by the words of their names.

One rule for everything that copies an environment: into lease pods, into companions, along with a
switch.
"""

from __future__ import annotations

import re
from typing import Final

#: Variables that the hub and gpulease set for one process.
_OF_ONE_PROCESS: Final = ("GPULEASE_", "JUPYTERHUB_", "JPY_")
#: When in doubt it is one; ``TOKENIZERS_PARALLELISM`` and its like are not.
_SECRET: Final = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY"
    r"|(^|_)(PASS|AUTH)(_|$)"
)


def is_of_one_process(name: str) -> bool:
    """Say whether a variable means one process of the hub or of gpulease, and no other."""
    return name.upper().startswith(_OF_ONE_PROCESS)


def is_secret(name: str) -> bool:
    """Say whether a variable's name says that it holds a secret."""
    return _SECRET.search(name.upper()) is not None
