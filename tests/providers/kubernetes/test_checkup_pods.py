"""Who refused a pod that must be refused decides: the right policy, something else, or nobody."""

import pytest

from gpulease.providers.kubernetes.api.official import OfficialClient
from gpulease.providers.kubernetes.checkup.pods import examine_pods
from gpulease.providers.kubernetes.manifests.manifest import PodSettings
from tests.providers.kubernetes.api_stream import Script, playing, said

SETTINGS = PodSettings(service_url="http://service", instance="lab", image="local.test/x:1")
POLICY = (
    "pods \"gpulease-doctor\" is forbidden: ValidatingAdmissionPolicy '{}' with binding '{}'"
    " denied request: it must not"
)
TAKEN = said(201, {"kind": "Pod", "metadata": {"name": "gpulease-doctor"}})


def refused(words: str) -> Script:
    return said(403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": words})


def by(policy: str) -> Script:
    return refused(POLICY.format(policy, policy))


LEASES, SERVERS = by("gpulease-lease-pods"), by("gpulease-no-gpu")
OTHER = by("somebody-elses")
SHORT = refused('pods "gpulease-doctor" is forbidden: exceeded quota: q, requested: pods=1')


@pytest.mark.parametrize(
    ("mount", "ask", "states"),
    [
        (LEASES, SERVERS, ("ok", "ok")),
        (OTHER, OTHER, ("unknown", "unknown")),
        (TAKEN, TAKEN, ("wrong", "wrong")),
        # Quotas come after every policy: these had let it through.
        (SHORT, SHORT, ("wrong", "wrong")),
        # The other one's word is nobody's proof.
        (SERVERS, LEASES, ("unknown", "unknown")),
    ],
    ids=["right", "other", "nobody", "quota", "swapped"],
)
async def test_who_refused_decides(tmp_path, mount, ask, states):
    async with playing(tmp_path, TAKEN, mount, ask) as (stream, path):
        client = OfficialClient(path)
        try:
            found = [each async for each in examine_pods(client, SETTINGS, (), "students", "mend")]
        finally:
            await client.close()
    assert [each.check for each in found] == ["lease_pod", "admission", "servers"]
    assert found[0].state == "ok"
    assert tuple(each.state for each in found[1:]) == states
    for each in found[1:]:
        assert "students" in each.sentence
        assert bool(each.next_step) == (each.state != "ok")
    assert all("dryRun=All" in first for first, _, _ in stream.asked)
