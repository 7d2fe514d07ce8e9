from hypothesis import example, given
from hypothesis import strategies as st

from gpulease.protocol import labels


@given(st.text(max_size=200))
@example("a--12345678")
@example("-" * 80)
@example("Jürgen@x.org")
def test_any_text_becomes_a_value_that_kubernetes_takes(text):
    assert labels.is_label_value(labels.label_value(text))
    assert labels.is_name(labels.object_name(text))


@given(st.text(max_size=80), st.text(max_size=80))
@example("jane@x", "jane-x")
@example("a" * 70, "a" * 71)
@example("A", "a")
def test_different_texts_have_different_values(one, other):
    assert (labels.label_value(one) == labels.label_value(other)) == (one == other)
    assert (labels.object_name(one) == labels.object_name(other)) == (one == other)


@given(st.text(max_size=80))
def test_a_value_is_not_the_value_of_its_own_value(text):
    value = labels.label_value(text)
    assert value == text or labels.label_value(value) != value


def test_plain_names_stay_readable():
    assert labels.label_value("jane.doe") == "jane.doe"
    assert labels.label_value("jane@x.org").startswith("jane-x.org--")
    assert labels.object_name("jane") == "jane"
    assert labels.label_value("") == ""


def test_each_attempt_of_a_lease_has_its_own_pod():
    names = {labels.lease_pod_name("5f2a", 1), labels.lease_pod_name("5f2a", 2)}
    assert names == {"gpulease-5f2a-1", "gpulease-5f2a-2"}
    assert labels.is_name(labels.lease_pod_name("X" * 90, 10**6))


def test_the_selector_holds_the_safe_form_of_the_instance():
    assert "gpulease/instance=hub-a--" in labels.lease_selector("hub a")
