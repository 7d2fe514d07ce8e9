"""What a placement made of a notebook: same, loud, a documented exception, or silent."""

from gpulease.verify.compare import Steady, compare, steady

#: What the contract excepts, by the word that a cell's tag has after ``excepted-``.
EXCEPTIONS = {
    "address": "id() and addresses in reprs",
    "set-order": "the order of a set rebuilt on the other side",
    "immutable-identity": "identity of immutable values",
    "device": "the device shown for a tensor",
    "timing": "timings",
    "frames": "frames of stored exceptions",
    "module-state": "state inside installed modules, but for the process state",
    "cache-counter": "counters inside caches",
    "finalizer": "what runs when an object dies",
    "held": "what something outside holds and cannot be filled in place",
}
#: From best to worst.
KINDS = ("same", "excepted", "loud", "silent")


def row(notebook, where, plain, placed, again):
    """Return a row of the table.

    ``again`` runs the notebook plainly once more, to tell a difference from one of every two runs.
    """
    findings = compare(notebook.cells, plain, placed, Steady())
    if any(kind(notebook, each) == "silent" for each in findings):
        what = steady(notebook.cells, plain, again())
        findings = compare(notebook.cells, plain, placed, what)
    kinds = [kind(notebook, each) for each in findings]
    return {
        "notebook": notebook.name,
        "placement": where.name,
        "result": max(kinds, key=KINDS.index, default="same"),
        "findings": [
            {"as": told, "cell": f.cell, "kind": f.kind, "name": f.name, "expected": f.expected,
             "found": f.found}
            for told, f in zip(kinds, findings, strict=True)
        ],
        "notes": [note for cell in placed.cells for note in cell.notes],
    }  # fmt: skip


def kind(notebook, finding):
    """Return what one finding is.

    A value that is on the other side at the end explains itself when it is read.  What differs
    after an error may differ because of it.
    """
    if finding.kind in ("stays", "set aside"):
        return "same"
    if finding.kind == "error" and finding.found.startswith("GPULeaseError"):
        return "loud"
    if any(tag.startswith("excepted-") for tag in notebook.tags.get(finding.cell, ())):
        return "excepted"
    return "silent"


def summary(rows):
    """Return how many rows have which result, as text."""
    counts = {each: sum(row["result"] == each for row in rows) for each in KINDS}
    return ", ".join(f"{count} {each}" for each, count in counts.items())
