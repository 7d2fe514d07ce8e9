"""What the chart renders, against Kubernetes' own schemas: of the oldest version that it says it
fits, of the one that the suite's clusters run, and of a newer one.

The API server of the clusters takes every object; that it has no field of which an older or a newer
one knows nothing, only their schemas can tell.
"""

import json
import subprocess
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

from testcluster.build import KUBERNETES_VERSION
from testcluster.machine import go_program
from tests.helm_values import shipped

CHART = yaml.safe_load((shipped.CHART / "Chart.yaml").read_text())
OLDEST = "v" + CHART["kubeVersion"].removeprefix(">=").removesuffix("-0")
NEWER = "v1.36.1"
#: Groups of custom resources: Kubernetes' own schemas do not have them.
CUSTOM = {"monitoring.coreos.com"}
#: What is text in the schemas and may be written as a number.
NUMBERS = ("io.k8s.apimachinery.pkg.api.resource.Quantity",)


@cache
def schemas(version):
    """Return validators by group, version and kind, which know no field that the schema lacks."""
    if go_program() is None:
        pytest.skip("Go is not installed")
    go = [go_program(), "mod", "download", "-json", f"k8s.io/kubernetes@{version}"]
    done = subprocess.run(go, capture_output=True, text=True, cwd="/")
    if done.returncode:
        pytest.skip(f"Kubernetes {version} cannot be downloaded: {done.stderr or done.stdout}")
    folder = Path(json.loads(done.stdout)["Dir"])
    whole = json.loads((folder / "api" / "openapi-spec" / "swagger.json").read_text())
    definitions = whole["definitions"]
    for name, each in definitions.items():
        if name in NUMBERS or each.get("format") == "int-or-string":
            each["type"] = ["string", "number"]
        elif "properties" in each:
            each.setdefault("additionalProperties", False)
    return {
        (kind["group"], kind["version"], kind["kind"]): {
            "$ref": f"#/definitions/{name}",
            "definitions": definitions,
        }
        for name, each in definitions.items()
        for kind in each.get("x-kubernetes-group-version-kind", ())
    }


def faults(document, version):
    """Return what a version's schema says against an object."""
    group, _, number = document["apiVersion"].rpartition("/")
    schema = schemas(version).get((group, number, document["kind"]))
    if schema is None:
        return [f"{version} has no {document['kind']} of {document['apiVersion']}"]
    found = jsonschema.Draft4Validator(schema).iter_errors(document)
    return [f"{'/'.join(map(str, each.absolute_path))}: {each.message}" for each in found]


@pytest.mark.parametrize("version", [OLDEST, KUBERNETES_VERSION, NEWER])
@pytest.mark.parametrize("feature", ["", *shipped.FEATURES])
def test_every_object_is_as_a_versions_schema_has_it(version, feature):
    seen = 0
    for _, document in shipped.render(shipped.FEATURES.get(feature)):
        if document["apiVersion"].partition("/")[0] in CUSTOM:
            continue
        assert faults(document, version) == [], document["metadata"]["name"]
        seen += 1
    assert seen > 20


def test_a_field_that_there_is_not_is_found():
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "gpus": 1}]}}
    (fault,) = faults(pod, OLDEST)
    assert fault.startswith("spec/containers/0: ")
    assert "gpus" in fault
