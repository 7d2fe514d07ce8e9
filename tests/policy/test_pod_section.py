from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.policy.document import check, default_document, dump, parse
from gpulease.policy.document.edit import differences
from gpulease.policy.model import Device, EvidenceLevel
from gpulease.policy.pods import (
    AskKind,
    ClusterQueue,
    MIGStrategy,
    PodAsk,
    QueueEngine,
    Sharing,
    Toleration,
    Where,
    resource_of,
    slot_units_of,
)
from tests.helpers import draws


def document(pod, evidence="cells", rest=""):
    return (
        f"pools: {{p: {{evidence: {evidence}}}}}\n"
        f"classes:\n  a:\n    pool: p\n    pod: {pod}\n{rest}"
    )


def ask_of(pod, **more):
    return parse(document(pod, **more)).classes[0].pod


def test_a_class_without_the_section_has_none_and_an_empty_one_asks_for_a_card():
    assert parse("pools: {p: }\nclasses: {a: {pool: p}}\n").classes[0].pod is None
    assert ask_of("{}") == PodAsk()
    assert (resource_of(PodAsk()), slot_units_of(PodAsk())) == ("nvidia.com/gpu", 1)


def test_every_key_is_read():
    text = """
      kind: mig
      profile: 1g.10gb
      strategy: single
      where: {memory_min: 9GiB, memory_max: 12GiB, compute_min: "8.0", compute_max: "9.0",
              products: [NVIDIA A100-SXM4-80GB]}
      topology: nvidia.com/gpu.clique
      node_selector: {site/room: north}
      tolerations: [nvidia.com/gpu, "pool=slices:NoSchedule"]
      runtime_class: nvidia
      image: registry.test/companion:1
      priority_class: leases
      scheduler: other
      requests: {cpu: 500m, memory: 2Gi}
      limits: {memory: 8Gi}
      extra_resources: {rdma/hca: 1}
      extra_annotations: {site/reason: course}
"""
    assert ask_of(text) == PodAsk(
        kind=AskKind.MIG,
        profile="1g.10gb",
        strategy=MIGStrategy.SINGLE,
        where=Where(9 * 2**30, 12 * 2**30, "8.0", "9.0", ("NVIDIA A100-SXM4-80GB",)),
        topology="nvidia.com/gpu.clique",
        node_selector=(("site/room", "north"),),
        tolerations=(Toleration("nvidia.com/gpu"), Toleration("pool", "slices", "NoSchedule")),
        runtime_class="nvidia",
        image="registry.test/companion:1",
        priority_class="leases",
        scheduler="other",
        requests=(("cpu", "500m"), ("memory", "2Gi")),
        limits=(("memory", "8Gi"),),
        extra_resources=(("rdma/hca", "1"),),
        extra_annotations=(("site/reason", "course"),),
    )


@pytest.mark.parametrize(
    ("memory", "cores", "units"), [(70, 70, 10), (40, 40, 5), (40, 70, 10), (10, 0, 1), (3, 3, 1)]
)
def test_a_fraction_takes_as_much_of_a_card_as_leaves_room_for_as_many_as_fit(memory, cores, units):
    ask = ask_of(f"{{hami: {{memory_percent: {memory}, cores_percent: {cores}}}}}")
    assert (ask.kind, resource_of(ask), ask.amount) == (AskKind.EXTRA, "nvidia.com/gpu", 1)
    assert dict(ask.extra_resources) == {
        "nvidia.com/gpumem-percentage": str(memory),
        "nvidia.com/gpucores": str(cores),
    }
    assert slot_units_of(ask) == units


def test_shared_memory_is_asked_for_and_counted_in_gibibytes():
    ask = ask_of("{gpushare: {memory: 8GiB}}")
    assert (resource_of(ask), ask.amount, slot_units_of(ask)) == ("aliyun.com/gpu-mem", 8, 8)


@pytest.mark.parametrize(
    ("pod", "part"),
    [
        ("{kind: fast}", "'fast' is not known"),
        ("{knd: mig}", "no key 'knd'"),
        ("{kind: mig}", "lacks its profile"),
        ("{profile: 1g.10gb}", "means nothing for the kind device_plugin"),
        ("{kind: dra, sharing: mps}", "means nothing for the kind dra"),
        ("{kind: shared, sharing: mps, compute_percent: 101}", "more than one card"),
        ("{kind: shared, compute_percent: 50}", "Only MPS limits"),
        ("{compute_percent: 50}", "means nothing for the kind device_plugin"),
        ("{kind: extra}", "asks for nothing"),
        ("{kind: shared, amount: 2}", "means nothing for the kind shared"),
        ("{resource: gpu}", "not an extended resource"),
        ("{resource: kubernetes.io/gpu}", "not an extended resource"),
        ("{extra_resources: {a.b/c: 1.5}}", "not a whole number"),
        ("{where: {memory_min: 8GiB, memory_max: 4GiB}}", "memory_max is below"),
        ('{where: {compute_min: "9.0", compute_max: "8.10"}}', "compute_max is below"),
        ("{where: {compute_min: 8}}", "not of the right form"),
        ("{where: {products: [a/b]}}", "not a product name"),
        ("{where: {products: {a: b}}}", "must be a list"),
        ("{tolerations: [[a]]}", "single value"),
        ("{tolerations: ['a=b:Never']}", "'Never' is not one of"),
        ("{tolerations: ['=b']}", "not a taint"),
        ("{node_selector: {'a b': c}}", "not a valid label"),
        ("{node_selector: {a: 'b c'}}", "cannot be a label's value"),
        ("{requests: {gpu: 1}}", "does not belong here"),
        ("{limits: {cpu: many}}", "not a quantity"),
        ("{extra_annotations: {gpulease/user: root}}", "gpulease's own"),
        ("{runtime_class: NVIDIA}", "not of the right form"),
        ("{image: 'a b'}", "not of the right form"),
        ("{topology: '/'}", "not a valid label or attribute"),
        ("{hami: {memory_percent: 140}}", "at most 100"),
        ("{hami: {cores_percent: 140}}", "at most 100"),
        ("{hami: {memory_percent: 40}, kind: extra}", "does not go with it"),
        ("{hami: {memory_percent: 40}, gpushare: {memory: 1GiB}}", "does not go with it"),
        ("{hami: {memory_percent: 40}, profile: x}", "does not go with it"),
        ("{gpushare: {memory: 1500MiB}}", "whole GiB"),
    ],
)
def test_mistakes_are_named_with_their_line(pod, part):
    findings = check(document(pod))
    assert [part in f.message for f in findings] == [True], findings
    assert findings[0].line == 5
    assert findings[0].next_step


@pytest.mark.parametrize(
    ("pod", "rest", "part"),
    [
        ("{kind: shared}", "    max_count: 2\n", "no more compute than one"),
        ("{kind: extra, extra_resources: {a.b/c: 1}}", "    max_count: 2\n", "one device only"),
        ("{gpushare: {memory: 2GiB}}", "    max_count: 2\n", "still one card"),
        ("{}", "    fallback: [a]\n", "'a' cannot be a fallback"),
        ("{}", "    fallback: [z]\n", "'z' cannot be a fallback"),
        ("{}", "    fallback: b\n  b: {pool: p, pod: {resource: amd.com/gpu}}\n", "one layout"),
    ],
)
def test_what_does_not_fit_together_is_named(pod, rest, part):
    findings = check(document(pod, rest=rest))
    assert [part in f.message for f in findings] == [True], findings


def test_a_fraction_is_never_judged_by_the_cards_use():
    (finding,) = check(document("{hami: {memory_percent: 40}}", evidence="device"))
    assert "evidence level cells" in finding.message
    assert finding.line == 5


def test_several_shares_are_allowed_where_the_admin_says_so():
    rest = "    max_count: 2\n"
    assert check(document("{kind: shared, several_shares: true}", rest=rest)) == []


def test_fallbacks_are_kept_in_their_order():
    rest = "    fallback: [c, b]\n  b: {pool: p}\n  c: {pool: p}\n"
    document_ = parse(document("{}", rest=rest))
    assert document_.classes[0].fallback == ("c", "b")
    assert parse(dump(document_)) == document_


def test_a_change_is_told_in_words():
    before = parse(document("{}"))
    after = parse(
        document("{kind: shared, sharing: mps}", rest="    fallback: [b]\n  b: {pool: p}\n")
    )
    told = differences(before, after)
    assert "for class a: set pod.kind from device_plugin to shared" in told
    assert "for class a: set pod.sharing from none to mps" in told
    assert "for class a: set fallback from none to b" in told


label = st.from_regex(r"[a-z][a-z0-9.-]{0,20}[a-z0-9]", fullmatch=True)
key = st.builds("{}/{}".format, label.filter(lambda x: x != "gpulease"), label)
pairs = st.dictionaries(key, label, max_size=3).map(lambda d: tuple(d.items()))
numbers = st.dictionaries(
    key.filter(lambda k: not k.split("/")[0].endswith("kubernetes.io")),
    st.integers(0, 99).map(str),
    max_size=3,
).map(lambda d: tuple(d.items()))
computed = st.dictionaries(
    st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "500m", "2Gi", "1.5"]), max_size=2
).map(lambda d: tuple(d.items()))
where = st.builds(
    Where,
    memory_min=st.integers(0, 2**40),
    compute_min=st.sampled_from(["", "7.5", "8.0"]),
    compute_max=st.sampled_from(["", "9.0", "12.1"]),
    products=st.lists(st.sampled_from(["NVIDIA A100", "Tesla-T4"]), max_size=2).map(tuple),
)
tolerations = st.lists(
    st.builds(
        Toleration,
        key,
        st.sampled_from(["", "x"]),
        st.sampled_from(["", "NoSchedule", "NoExecute"]),
    ),
    max_size=2,
).map(tuple)
common = {
    "where": where,
    "tolerations": tolerations,
    "topology": st.just("") | key,
    "node_selector": pairs,
    "runtime_class": st.just("") | label,
    "priority_class": st.just("") | label,
    "scheduler": st.just("") | label,
    "image": st.sampled_from(["", "a.test/b:1", "b@sha256:00"]),
    "requests": computed,
    "limits": computed,
    "extra_resources": numbers,
    "extra_annotations": pairs,
    "extra_labels": pairs,
    "queue": st.none()
    | st.builds(ClusterQueue, st.sampled_from(QueueEngine), label, st.integers(1, 99)),
}
asks = st.one_of(
    st.builds(PodAsk, st.just(AskKind.DEVICE_PLUGIN), st.just("") | key, **common),
    st.builds(
        PodAsk,
        st.just(AskKind.SHARED),
        sharing=st.sampled_from(Sharing),
        several_shares=st.booleans(),
        slot_units=st.integers(0, 9),
        **common,
    ),
    st.builds(
        PodAsk,
        st.just(AskKind.SHARED),
        sharing=st.just(Sharing.MPS),
        compute_percent=st.integers(0, 100),
        **common,
    ),
    st.builds(
        PodAsk,
        st.just(AskKind.MIG),
        profile=st.sampled_from(["1g.5gb", "1g.10gb.me"]),
        strategy=st.sampled_from(MIGStrategy),
        **common,
    ),
    st.builds(
        PodAsk, st.just(AskKind.DRA), device_class=st.just("") | label, profile=label, **common
    ),
    st.builds(
        PodAsk,
        st.just(AskKind.EXTRA),
        st.just("a.test/gpu-mem"),
        st.integers(1, 99),
        st.integers(0, 99),
        **common,
    ),
)


@settings(max_examples=draws(10))
@given(asks)
def test_what_is_dumped_is_read_back(ask):
    if ask.resource and ask.resource.split("/")[0].endswith("kubernetes.io"):
        ask = replace(ask, resource="")
    base = default_document([Device("a", "cards")])
    pools = (replace(base.pools[0], evidence=EvidenceLevel.CELLS),)
    written = replace(base, pools=pools, classes=(replace(base.classes[0], pod=ask),))
    assert parse(dump(written), 1) == written
