"""Tokens of model hubs and trackers: taken to the GPU by name only, and said where missed.

Pure: names in, names out; an error's text in, a sentence out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from gpulease.errors import GPULeaseError
from gpulease.protocol.variables import is_of_one_process, is_secret

#: What says that a credential is missing, and the variable it is read from.
_MISSED = (
    (re.compile(r"(?i)gated repo|huggingface_hub|huggingface\.co|hf auth login"), "HF_TOKEN"),
    (re.compile(r"(?i)wandb(: | login|\.login)|api_key not configured"), "WANDB_API_KEY"),
    (re.compile(r"(?i)kaggle\.json|kaggle authenticate"), "KAGGLE_KEY"),
)
_REFUSED = re.compile(
    r"(?i)\b401\b|unauthori[sz]ed|gated repo|not configured|log ?in\b|invalid .{0,20}token"
    r"|authenticat|credential|api[_ ]key"
)
_NAME = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")


def parse_shared(text: str) -> tuple[str, ...]:
    """Return the variables named in ``A,B``; "" and "none" name none.

    Raises:
        GPULeaseError: ``bad_command`` for what is no variable, or never leaves its process.
    """
    if text in ("", "none"):
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise _bad(f"{name!r} is no environment variable's name.")
        if is_of_one_process(name) or not is_secret(name):
            why = "belongs to the hub" if is_of_one_process(name) else "needs no leave"
            raise _bad(f"{name} {why}: only tokens, keys and passwords are named here.")
    return names


def missing(ename: str, evalue: str, here: Mapping[str, str], shared: Collection[str]) -> str:
    """Say why a GPU cell found no token, or ``""`` where its error is about something else.

    ``here``: the notebook's environment; ``shared``: what is taken to the GPU.
    """
    wanted = _wanted(ename, evalue)
    names = [name for name in wanted if name not in shared]
    if not names:
        return ""
    text = ",".join(names)
    if any(name in here for name in names):
        return (
            f"Tokens are taken to the GPU only if you say so. %gpu config env {text} takes "
            f"{' and '.join(names)} there."
        )
    return (
        f"{' and '.join(names)} is not set. Set it in your notebook (os.environ), and "
        f"%gpu config env {text} takes it to the GPU: tokens go there only if you say so."
    )


def _wanted(ename: str, evalue: str) -> list[str]:
    named = [name for name in _NAME.findall(evalue) if is_secret(name)]
    if ename == "KeyError":  # os.environ["HF_TOKEN"]
        return named if evalue.strip("'\"") in named else []
    if not _REFUSED.search(f"{ename} {evalue}"):
        return []
    found = [name for says, name in _MISSED if says.search(f"{ename} {evalue}")]
    return list(dict.fromkeys(found or named))


def _bad(sentence: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_command", sentence, next_step="For example: %gpu config env HF_TOKEN,WANDB_API_KEY"
    )
