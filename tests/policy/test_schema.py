"""The JSON Schema of the policy document, beside the reader that decides."""

import jsonschema
import pytest
import yaml

from gpulease.policy.document import check, default_document, dump, json_schema

VALID = """
pools: {cards: {evidence: process, spare: 1}}
classes:
  t4: {pool: cards, memory: 16GiB, price: 2, time_outs: {idle: 5m, keeps: 2}}
reservations: {lead: 2m, groups: {cs101: {managers: [tom]}}}
projects: {physics: {pools: {cards: {guarantee: 4}}, budget: {gpu_hours: 10, at_zero: end}}}
"""


def problems(text: str) -> list[str]:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    found = jsonschema.Draft202012Validator(schema).iter_errors(yaml.safe_load(text))
    return [error.message for error in found]


@pytest.mark.parametrize("text", [VALID, dump(default_document([]))])
def test_what_the_reader_takes_the_schema_takes(text):
    assert not [found for found in check(text) if found.level == "error"]
    assert problems(text) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [("pool: cards,", "pol: cards,"), ("spare: 1", "spare: many"), ("idle: 5m", "idle: soon"),
     ("at_zero: end", "at_zero: stop"), ("price: 2", "price: -1")],
)  # fmt: skip
def test_what_the_schema_refuses_the_reader_refuses(old, new):
    text = VALID.replace(old, new)
    assert text != VALID
    assert problems(text)
    assert [found for found in check(text) if found.level == "error"]
