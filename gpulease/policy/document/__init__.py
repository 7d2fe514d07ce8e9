"""The policy document: YAML in, ``PolicyDocument`` or findings out; what a change would mean."""

from gpulease.policy.document.reader import check as check
from gpulease.policy.document.reader import default_document as default_document
from gpulease.policy.document.reader import dump as dump
from gpulease.policy.document.reader import form as form
from gpulease.policy.document.reader import json_schema as json_schema
from gpulease.policy.document.reader import parse as parse
from gpulease.policy.document.reader import with_time_outs as with_time_outs
from gpulease.policy.document.source import MAX_TEXT as MAX_TEXT
from gpulease.policy.document.source import Finding as Finding
