"""Tokens of model hubs and trackers: taken to the GPU by name only, and said where missed.

Pure: names in, names out; an error's text in, a sentence out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence

from gpulease.errors import GPULeaseError
from gpulease.protocol.variables import is_secret
from gpulease.sides.environment import allowed_environment
from gpulease.sides.names.source import nodes_of
from gpulease.sides.state.process_state import stays

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
_ASKS = ("environ.get", "getenv")
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
        if why := stays(name) or ("" if _is_left_out(name) else "it is on the GPU anyhow"):
            raise _bad(f"{name} cannot be named here: {why}.")
    return names


def _is_left_out(name: str) -> bool:
    """Say whether a variable is on the GPU only where the person names it."""
    return not stays(name) and (is_secret(name) or not allowed_environment({name: ""}))


def left_out(source: str, here: Mapping[str, str], shared: Collection[str]) -> list[str]:
    """Return the variables of ``here`` that a cell reads and that nobody takes to the GPU.

    By ``os.environ.get`` and ``os.getenv``, which give None for what is not there.
    """
    if not any(name in source for name in ("environ", "getenv")):
        return []
    nodes = nodes_of(source) or ()
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.args]
    asked = [call.args[0] for call in calls if ast.unparse(call.func).endswith(_ASKS)]
    names = [node.value for node in asked if isinstance(node, ast.Constant)]
    found = [name for name in names if isinstance(name, str) and name in here]
    return [name for name in dict.fromkeys(found) if name not in shared and _is_left_out(name)]


def not_taken(names: Sequence[str]) -> str:
    """Say that variables are set in the notebook and not on the GPU, and what takes them there."""
    text, are = " and ".join(names), "are" if len(names) > 1 else "is"
    return (
        f"{text} {are} set in your notebook and not on the GPU: %gpu config env {','.join(names)} "
        "takes what it names there."
    )


def missing(ename: str, evalue: str, here: Mapping[str, str], shared: Collection[str]) -> str:
    """Say why a GPU cell found no token, or ``""`` where its error is about something else.

    ``here``: the notebook's environment; ``shared``: what is taken to the GPU.
    """
    key = evalue.strip("'\"")
    if ename == "KeyError" and key in here and key not in shared and _is_left_out(key):
        return not_taken([key])
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
