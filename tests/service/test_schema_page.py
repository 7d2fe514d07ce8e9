"""The JSON Schema of the policy over REST."""

from tests.service.kit import Site


async def test_everybody_reads_the_schema(site: Site) -> None:
    found = await site.client(site.hub.page_token("stu")).call("GET", "policy/schema")
    assert found["required"] == ["pools", "classes"]
