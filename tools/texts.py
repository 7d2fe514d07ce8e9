"""The texts of the service's pages: from the source into the catalogues of each language.

`update` writes what is new into the catalogues and takes out what is gone; `check` says what is not
translated, or out of date.  It runs in the environment of `make check`.
"""

import argparse
import io
import re
import sys
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

from gpulease.policy import reasons
from gpulease.policy.explanation import catalogue, explain

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gpulease"
LOCALE = PACKAGE / "service" / "locale"
METHODS = [
    ("service/pages/static/lib/**", "ignore"),
    ("service/pages/static/**.js", "javascript"),
    ("service/pages/templates/**.html", "jinja2"),
    ("sizes.py", "python"),
    ("policy/**.py", "python"),
    ("runs/**.py", "python"),
    ("simulate/**.py", "python"),
    ("service/rest/**.py", "ignore"),
    ("service/**.py", "python"),
]
KEYWORDS = {"_": None, "_n": (1, 2), "_h": None, "Text": None, "counted": (1, 2)}
OPTIONS = {"**.html": {"trimmed": "true"}, "**.js": {"parse_template_string": "true"}}
WRITTEN = re.compile(r'\b_[nh]?\(\s*"([^"]+)"')
PLACES = re.compile(r"\{\w+\}|%%?gpu|%\w+|`[^`]*`")
#: Refusals that commands and programs meet, and no page.
ELSEWHERE = frozenset(
    [
        "bad_backup",
        "bad_database",
        "bad_key_file",
        "bad_option",
        "cannot_prove",
        "file_exists",
        "file_open_to_others",
        "invalid_key",
        "malformed_json",
        "may_not_measure",
        "method_not_allowed",
        "no_database",
        "no_kubernetes",
        "no_such_run",
        "not_a_warm_pod",
        "not_an_agent",
        "not_found",
        "not_json",
        "not_this_lease",
        "run_changed",
        "runs_not_set_up",
        "still_leasing",
        "store_ahead",
        "store_behind",
        "store_fenced",
        "store_in_use",
        "store_not_empty",
        "store_replaced",
        "too_many_runs",
        "unknown_person",
        "upgrade_required",
        "wrong_protocol",
    ]
)
#: The mapped reasons, by the file that owns them.
TABLES = {
    "policy/reasons.py": (
        *(getattr(reasons, name) for name in ("WAITING", "STARTING", "ACTIVE", "LEAVING", "ENDED")),
        reasons.CAUSES,
        reasons.PROGRESS,
    ),
    "policy/explanation/explain.py": tuple(explain.OF_PARTS.values()),
    "policy/explanation/catalogue.py": (
        {code: (said,) for code, said in catalogue.AUDITED.items()},
        catalogue.ALERTS,
        catalogue.ADMIN_STEPS,
        {code: words for code, words in catalogue.REFUSALS.items() if code not in ELSEWHERE},
    ),
}


HEAD = (
    '"Content-Type: text/plain; charset=utf-8\\n"\n'
    '"Language: {language}\\n"\n"Plural-Forms: {plural}\\n"\n'
)


def texts():
    """Return every text that a page can show, with the files where it stands."""
    found = Catalog(charset="utf-8")
    for name, _, message, _, _ in extract_from_dir(
        PACKAGE, METHODS, OPTIONS, keywords=KEYWORDS, directory_filter=lambda _: True
    ):
        found.add(message, locations=[(f"gpulease/{name}", 0)])
    for name, tables in TABLES.items():
        for table in tables:
            for words in table.values():
                for text in (words,) if isinstance(words, str) else words:
                    if text:
                        found.add(text, locations=[(f"gpulease/{name}", 0)])
    return found


def renewed(language, source):
    """Return a language's catalogue with the texts of now, in their order, as it is written."""
    with (LOCALE / language / "LC_MESSAGES" / "gpulease.po").open("rb") as file:
        known = read_po(file, locale=language)
    new = Catalog(locale=language, charset="utf-8", fuzzy=False)
    for message in sorted(source, key=lambda each: str(each.id).lower()):
        if message.id:
            old = known.get(message.id)
            places = sorted({place for place, _ in message.locations})
            new.add(message.id, old.string if old else "", [(place, 0) for place in places])
    written = io.BytesIO()
    write_po(written, new, width=100, include_lineno=False, omit_header=True)
    head = f'msgid ""\nmsgstr ""\n{HEAD.format(language=language, plural=new.plural_forms)}\n'
    return new, head + written.getvalue().decode()


def problems(catalogue):
    """Say what is wrong with a catalogue's translations."""
    for message in catalogue:
        if not message.id:
            continue
        forms = message.id if isinstance(message.id, tuple) else (message.id,)
        strings = message.string if isinstance(message.id, tuple) else (message.string,)
        if not all(strings) or len(strings) < len(forms):
            yield f"not translated: {forms[0]!r}"
            continue
        wanted = sorted(PLACES.findall(forms[-1]))
        for string in strings:
            if sorted(PLACES.findall(string)) != wanted:
                yield f"other places: {string!r}"


def overlooked(source):
    """Say which texts of scripts were not seen: those within others and within braces."""
    seen = {each if isinstance(each, str) else each[0] for each in (found.id for found in source)}
    for path in sorted((PACKAGE / "service/pages/static").glob("*.js")):
        for text in WRITTEN.findall(path.read_text(encoding="utf-8")):
            if text not in seen:
                yield f"not extracted: {path.name}: {text!r}"


def main(arguments=None):
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description="The catalogues of the service's pages.")
    parser.add_argument("command", choices=("update", "check"))
    command = parser.parse_args(arguments).command
    source = texts()
    wrong = list(overlooked(source))
    for language in sorted(each.name for each in LOCALE.iterdir()):
        path = LOCALE / language / "LC_MESSAGES" / "gpulease.po"
        catalogue, written = renewed(language, source)
        if command == "update":
            path.write_text(written, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != written:
            wrong.append(f"{language}: out of date; run: make texts")
        wrong += [f"{language}: {each}" for each in problems(catalogue)]
    print("\n".join(wrong) if wrong else "Every text of the pages is translated.")
    return 1 if wrong and command == "check" else 0


if __name__ == "__main__":
    sys.exit(main())
