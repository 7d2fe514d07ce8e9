"""Libraries that are imported, told from a module of a person's own that has the same name.

A student may well keep a file ``torch.py`` or ``pandas.py`` beside the notebook.  Whoever looks at
a library by its name asks here, and gets None for such a file.
"""

from __future__ import annotations

import sys
from typing import Any

#: For each library one of the modules that it has inside, in any of its versions.
_INSIDE: dict[str, tuple[str, ...]] = {
    "accelerate": ("accelerate.state",),
    "cudf": ("cudf.core",),
    "cupy": ("cupy._core",),
    "ipywidgets": ("ipywidgets.widgets",),
    "jax": ("jax._src",),
    "numba": ("numba.core.dispatcher",),
    "numpy": ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"),
    "pandas": ("pandas._libs",),
    "plotly": ("plotly.basedatatypes",),
    "scipy": ("scipy._lib",),
    "sklearn": ("sklearn.base",),
    "spacy": ("spacy.language",),
    "torch": ("torch._C",),
    "torchvision": ("torchvision.extension",),
    "tqdm": ("tqdm.std",),
    "transformers": ("transformers.utils",),
}
#: What a dialect of csv consists of.
CSV_DIALECT = (
    "delimiter", "doublequote", "escapechar", "lineterminator", "quotechar", "quoting",
    "skipinitialspace", "strict",
)  # fmt: skip


def library(name: str) -> Any:
    """Return the library ``name`` where it is imported, None else.

    Of one that is not in the table, whatever has its name is taken for it.
    """
    found = sys.modules.get(name)
    if found is None or name not in _INSIDE:
        return found
    for each in _INSIDE[name]:  # each object is asked for this: a generator would take longer
        if each in sys.modules:
            return found
    return None


def whole_library(name: str) -> Any:
    """Return the library ``name`` where it is imported to its end, None else.

    For whoever may run while another thread imports it: in the middle of that it lacks what it has.
    """
    found = library(name)
    being_made = getattr(getattr(found, "__spec__", None), "_initializing", False)
    return None if being_made else found


def magics(name: str) -> Any:
    """Return the running shell's object of this class of magics, None where there is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell.magics_manager.registry.get(name) if shell is not None else None


def package_of(kind: type) -> str:
    """Return the top-level package that a class says it is of, be that what it may."""
    return str(kind.__module__).partition(".")[0]
