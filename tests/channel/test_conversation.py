"""Whatever the network does to messages, each call ends once, with its own answer."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpulease.channel.conversation import (
    Answered,
    Called,
    Cancelled,
    Conversation,
    Malformed,
    Pushed,
)
from gpulease.errors import GPULeaseError
from tests.helpers import draws


class Network(RuleBasedStateMachine):
    """Two ends and what is on its way: reordered, repeated, lost, late."""

    def __init__(self) -> None:
        super().__init__()
        self.asking: Conversation[int] = Conversation()
        self.answering: Conversation[None] = Conversation()
        self.there: list[dict] = []  # on their way to the end that answers
        self.back: list[dict] = []
        self.begun: list[Called] = []  # what the other end works on, some of it for nobody
        self.numbers: dict[int, int] = {}  # of the calls that wait, by the call
        self.ended: dict[int, list[str]] = {}  # how each call ended
        self.calls = 0

    @rule()
    def call(self) -> None:
        self.calls += 1
        self.ended[self.calls] = []
        number, message = self.asking.call("echo", {"value": self.calls}, self.calls)
        self.numbers[self.calls] = number
        self.there.append(message)

    @rule(data=st.data())
    @precondition(lambda self: self.numbers)
    def cancel(self, data) -> None:
        call = data.draw(st.sampled_from(sorted(self.numbers)))
        number = self.numbers.pop(call)
        assert self.asking.forget(number) == call
        assert self.asking.forget(number) is None
        self.there.append({"cancel": number})
        self.ended[call].append("cancelled")

    @rule(data=st.data(), again=st.booleans())
    @precondition(lambda self: self.there)
    def arrive_there(self, data, again) -> None:
        at = data.draw(st.integers(0, len(self.there) - 1))
        message = self.there[at] if again else self.there.pop(at)
        event = self.answering.received(message)
        if isinstance(event, Called):
            self.begun.append(event)
        elif isinstance(event, Cancelled):
            assert self.answering.answer(event.call, 0) is None, "nobody waits for it"
        else:
            assert event is None

    @rule(data=st.data(), refused=st.booleans())
    @precondition(lambda self: self.begun)
    def answer(self, data, refused) -> None:
        call = data.draw(st.sampled_from(self.begun))
        value = call.args["value"]
        if refused:
            error = GPULeaseError("no", "No.", numbers={"value": value})
            message = self.answering.refuse(call, error)
        else:
            message = self.answering.answer(call, value)
        if message is not None:
            assert self.answering.answer(call, value) is None, "a call is answered once"
            self.back.append(message)

    @rule(data=st.data(), again=st.booleans())
    @precondition(lambda self: self.back)
    def arrive_back(self, data, again) -> None:
        at = data.draw(st.integers(0, len(self.back) - 1))
        event = self.asking.received(self.back[at] if again else self.back.pop(at))
        if event is None:
            return
        assert isinstance(event, Answered)
        value = event.error.numbers["value"] if event.error else event.value
        assert value == event.waiter, "an answer of another call"
        self.ended[event.waiter].append("answered")
        del self.numbers[event.waiter]

    @rule(data=st.data())
    @precondition(lambda self: self.there or self.back)
    def drop(self, data) -> None:
        queue = data.draw(st.sampled_from([q for q in (self.there, self.back) if q]))
        queue.pop(data.draw(st.integers(0, len(queue) - 1)))

    @rule(late=st.booleans())
    def reconnect(self, late) -> None:
        for call in self.asking.lost():
            self.ended[call].append("lost")
            del self.numbers[call]
        assert not self.numbers
        self.answering.lost()
        for call in self.begun:
            assert self.answering.answer(call, 0) is None, "the other end is another now"
        if not late:
            self.there, self.back = [], []

    @invariant()
    def each_call_ends_once(self) -> None:
        for call, ends in self.ended.items():
            assert len(ends) == (0 if call in self.numbers else 1)


Network.TestCase.settings = settings(max_examples=draws(30), stateful_step_count=40, deadline=None)
test_network = Network.TestCase


def test_what_is_no_call_is_pushed_whole() -> None:
    message = {"type": "lease", "id": 7, "lease": {"ok": 1}}
    assert Conversation[None]().received(message) == Pushed(message)


def test_an_answer_to_nobody_changes_nothing() -> None:
    for number in (1, None, "1", [1], {}, True):
        assert Conversation[None]().received({"id": number, "ok": 1}) is None


def test_a_call_without_a_number_is_not_answered() -> None:
    end: Conversation[None] = Conversation()
    told = end.received({"call": "cell", "args": {"busy": True}})
    assert isinstance(told, Called)
    assert end.answer(told, 1) is None


def test_what_is_called_in_a_way_that_nobody_understands_is_refused() -> None:
    for odd in ({"call": 7}, {"call": "x", "args": [1]}, {"call": "x", "id": "one"}):
        event = Conversation[None]().received({"id": 3, **odd})
        assert isinstance(event, Malformed)
        assert event.answer["problem"]["reason"] == "malformed"


def test_a_problem_that_is_none_still_ends_the_call() -> None:
    end: Conversation[str] = Conversation()
    number, _ = end.call("x", {}, "me")
    event = end.received({"id": number, "problem": "?"})
    assert isinstance(event, Answered)
    assert event.error is not None
