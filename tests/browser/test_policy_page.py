"""The admin's page of time-outs and the policy document: form, editor, versions, conflicts."""

from typing import Any

import pytest

from gpulease.service.pages import PageReader
from tests.helpers import wait_for
from tests.pages.stage import Stage, soon

pytestmark = pytest.mark.browser
ADMIN = PageReader("root", admin=True)
TEXT = "#policy-text .cm-content"
CHANGED = {"title": "Version 2 came into force meanwhile.", "reason": "policy_changed"}


def put_in_editor(page: Any, text: str) -> None:
    page.evaluate("text => { document.getElementById('policy-text').value = text; }", text)


def confirm(page: Any) -> None:
    """Say yes to what the dialog asks, after which it is gone."""
    page.click("#save-submit")
    page.wait_for_selector("#save-dialog", state="hidden")


def in_editor(page: Any) -> str:
    found: str = page.evaluate("document.getElementById('policy-text').value")
    return found


def test_findings_carry_their_lines_and_lead_there(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.policy["text"] = "pools: {}\nclasses:\n  sim:\n    poo: local\n"
    stage.findings = [{"line": 4, "column": 5, "level": "error", "sentence": "Unknown key poo."}]
    page.goto(stage.url + "policy#advanced")
    page.wait_for_function("() => document.getElementById('policy-text').value?.includes('poo')")
    assert page.is_disabled("#policy-save")  # nothing is changed
    put_in_editor(page, in_editor(page) + "# more\n")
    page.click("#policy-save")
    page.wait_for_selector("text=1 error to fix before saving.")
    assert not stage.called("PUT", "policy")
    assert page.locator("#policy-text .cm-lintRange-error").inner_text() == "poo: local"
    page.click("text=Unknown key poo.")
    picked = page.evaluate(
        "document.getElementById('policy-text').shadowRoot.getSelection().toString()"
    )
    assert picked == "    poo: local"
    assert page.evaluate("document.activeElement.id") == "policy-text"


def test_saving_makes_a_version_and_an_old_one_is_restored(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    page.goto(stage.url + "policy#advanced")
    page.wait_for_selector("text=version 1, by root")
    put_in_editor(page, "pools: {a: {}}\n")
    page.click("#policy-save")
    page.click("#save-cancel")
    assert not stage.called("PUT", "policy")
    page.click("#policy-save")
    confirm(page)
    page.wait_for_selector("text=Version 2 (in force)")
    assert stage.called("PUT", "policy")[0]["base_version"] == 1
    put_in_editor(page, "typed: 1\n")
    page.click("[aria-label='Restore version 1']")
    page.wait_for_selector("#save-heading >> text=Restore version 1?")
    assert "did not save is dropped" in page.inner_text("#save-lost")
    page.click("#save-cancel")
    assert in_editor(page) == "typed: 1\n"
    page.click("[aria-label='Restore version 1']")
    confirm(page)
    page.wait_for_selector("text=Version 3 (in force)")
    assert in_editor(page) == "pools: {}\n"
    assert [each["text"] for each in stage.called("PUT", "policy")] == [
        "pools: {a: {}}\n",
        "pools: {}\n",
    ]


def test_what_is_wrong_with_an_old_version_is_shown(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.findings = [{"line": 1, "level": "error", "sentence": "Unknown key poo."}]
    stage.versions.append(stage.policy | {"version": 2})
    stage.policy["version"] = 2
    page.goto(stage.url + "policy")
    page.click("[aria-label='Restore version 1']")
    page.click("text=Unknown key poo.")  # it stands in the part that was closed
    page.wait_for_function("() => document.activeElement.id === 'policy-text'")


def test_a_check_says_what_saving_would_change(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.changes = ["set idle from 5m to 1m"]
    page.goto(stage.url + "policy#advanced")
    page.wait_for_selector("text=version 1, by root")
    page.click("#policy-check")
    page.wait_for_selector("#policy-findings >> text=set idle from 5m to 1m")
    assert "Valid." in page.inner_text("#policy-findings")
    assert not stage.called("PUT", "policy")


def test_a_policy_pinned_to_a_file_is_read_only(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.policy["pinned"] = True
    page.goto(stage.url + "policy#advanced")
    page.wait_for_selector("text=pinned to a file")
    assert page.locator("#policy-text").evaluate("e => e.readOnly")
    assert page.is_disabled("#policy-save")


def test_a_save_that_is_refused_keeps_what_was_typed(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.answers["PUT policy"] = (409, {"title": "Somebody saved version 2.", "reason": "stale"})
    page.goto(stage.url + "policy#advanced")
    page.wait_for_selector("text=version 1, by root")
    put_in_editor(page, "mine: 1\n")
    page.click("#policy-save")
    confirm(page)
    page.wait_for_selector('#gl-alerts [data-reason="stale"]')
    assert in_editor(page) == "mine: 1\n"
    wait_for(lambda: page.is_enabled("#policy-save"))
    page.once("dialog", lambda dialog: dialog.accept())  # leaving asks first


def test_after_a_save_it_is_said_what_was_changed(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.changes = ["set idle from 5m to 1m"]
    page.goto(stage.url + "policy#advanced")
    page.wait_for_selector("text=version 1, by root")
    put_in_editor(page, "pools: {a: {}}\n")
    page.click("#policy-save")
    page.wait_for_selector("#save-about >> text=set idle from 5m to 1m")
    confirm(page)
    page.wait_for_selector("#policy-findings >> text=Saved as version 2")
    said = page.inner_text("#policy-findings")
    assert "set idle from 5m to 1m" in said
    assert "What changes" not in said
    assert page.is_visible("#gl-alerts >> text=Saved as version 2; it is in force now.")


def test_time_outs_are_a_form_that_says_what_a_change_would_do(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.warned = 2
    page.goto(stage.url + "policy")
    page.wait_for_selector("#out-idle")
    assert (page.input_value("#out-idle"), page.input_value("#out-idle-unit")) == ("5", "m")
    assert "Default 5\xa0min; 1\xa0s to 7 days." in page.inner_text("#out-idle-help")
    assert page.is_disabled("#outs-save")
    page.fill("#out-idle", "1")
    page.wait_for_selector("text=2 running leases would be warned now.")
    both = {"idle": "1m", "idle_under_pressure": "1m"}  # the second is never longer than the first
    assert stage.called("POST", "policy/time-outs")[-1] == {"values": both}
    page.click("#outs-undo")
    assert page.input_value("#out-idle") == "5"
    page.fill("#out-keeps", "1")
    page.wait_for_selector("#outs-found >> text=Max. extensions: 3 → 1")
    put_in_editor(page, "typed: 1\n")
    page.click("#outs-save")
    assert page.locator("#save-about li").all_inner_texts() == [
        "Max. extensions: 3 → 1", "2 running leases would be warned now.",
    ]  # fmt: skip
    assert "typed in the document below is dropped" in page.inner_text("#save-lost")
    confirm(page)
    page.wait_for_selector("#gl-alerts >> text=Saved as version 2; it is in force now.")
    page.wait_for_selector("#outs-save:disabled")
    wait_for(lambda: stage.called("PUT", "policy"))
    assert stage.called("PUT", "policy") == [{"text": '{"keeps": "1"}', "base_version": 1}]


def test_a_time_out_out_of_bounds_is_said_and_not_saved(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.findings = [{"level": "error", "line": 1, "sentence": "At most 7 days.", "next_step": ""}]
    page.goto(stage.url + "policy")
    page.fill("#out-idle", "99")
    page.wait_for_selector("#outs-found >> text=At most 7 days.")
    assert page.is_disabled("#outs-save")


def test_a_conflict_of_time_outs_shows_both_sides_and_keeps_the_edit(
    stage: Stage, page: Any
) -> None:
    stage.reader = ADMIN
    page.goto(stage.url + "policy")
    page.fill("#out-idle", "4")
    page.wait_for_selector("#outs-save:enabled")
    stage.answers["PUT policy"] = (409, CHANGED)
    next(each for each in stage.time_outs if each["name"] == "idle")["value"] = 600.0
    page.click("#outs-save")
    confirm(page)
    page.wait_for_selector("#outs-conflict")
    assert page.locator("#outs-found tbody td").all_inner_texts() == [
        "Idle",
        "5\xa0min",
        "10\xa0min",
        "4m",
    ]
    assert page.input_value("#out-idle") == "4"
    stage.answers.clear()
    page.click("#outs-save")
    confirm(page)
    wait_for(lambda: len(stage.called("PUT", "policy")) == 2)


def test_sliders_move_the_time_outs_and_say_what_last_week_would_have_been(
    stage: Stage, page: Any
) -> None:
    stage.reader = ADMIN
    page.goto(stage.url + "policy")
    page.wait_for_selector("#out-idle-slider")
    page.focus("#out-idle-slider")
    page.keyboard.press("ArrowLeft")
    assert page.input_value("#out-idle") == "4"
    page.wait_for_selector("#outs-found >> text=Idle: 5 min → 4 min")
    page.wait_for_selector("#outs-replay >> text=Waits would have been 12 min shorter.")
    (asked,) = stage.called("POST", "whatif")
    assert asked == {"text": '{"idle": "4m"}', "days": 7}
    page.wait_for_selector("#outs-pictures canvas >> nth=1")
    said = page.locator("#outs-pictures figcaption").all_inner_texts()
    assert "Leased 107.5 h now, 59.7 h with these values." in said[0]
    assert "Now on average 1.4, with these values 0.98; in use 0.76." in said[1]
    assert "10\xa0min: 15 GPU-hours saved, 1 interrupted." in said[2]
    assert page.locator(".gl-spans rect").count() == 4 * 43
    page.fill("#out-idle", "20")
    page.select_option("#out-idle-unit", "s")
    wait_for(lambda: page.get_attribute("#out-idle-slider", "aria-valuetext") == "20 seconds")
    stage.answers["POST whatif"] = (
        409,
        {"title": "There is nothing to replay.", "reason": "no_history", "next_step": ""},
    )
    page.fill("#out-idle", "30")
    page.wait_for_selector("#outs-replay >> text=There is nothing to replay.")


def test_versions_are_compared_line_by_line(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    texts = ["a: 1\nb: 2\nc: 3\nd: 4\ne: 5\nf: 6\n", "a: 1\nb: 2\nc: 3\nd: 4\nx: 0\ne: 5\nf: 7\n"]
    stage.versions = [
        {"version": n, "text": text, "author": "ada", "at": soon(0)}
        for n, text in enumerate(texts, 1)
    ]
    stage.policy = stage.versions[1]
    page.goto(stage.url + "policy")
    page.click("[aria-label='Compare version 1 with the one in force']")
    lines = page.inner_text("#policy-versions pre").splitlines()
    assert lines == ["…", "  c: 3", "  d: 4", "+ x: 0", "  e: 5", "- f: 6", "+ f: 7"]
    page.click("[aria-label='Compare version 1 with the one in force']")
    page.wait_for_selector("#policy-versions pre", state="detached")


def test_a_time_out_that_bounds_another_takes_it_along_and_is_never_passed(
    stage: Stage, page: Any
) -> None:
    stage.reader = ADMIN
    page.goto(stage.url + "policy")
    assert "never longer than Idle" in page.inner_text("#out-idle_under_pressure-help")
    page.fill("#out-idle", "30")
    page.select_option("#out-idle-unit", "s")
    page.wait_for_selector("#outs-found >> text=Idle while others wait: 2 min → 30 s")
    assert page.input_value("#out-idle_under_pressure") == "30"
    page.fill("#out-idle_under_pressure", "31")
    page.wait_for_selector(
        "#outs-found >> text=Idle while others wait must not be longer than Idle."
    )
    assert page.is_disabled("#outs-save")


@pytest.mark.parametrize("typed", ["form", "document"])
def test_who_leaves_with_what_is_not_saved_is_asked(stage: Stage, page: Any, typed: str) -> None:
    stage.reader = ADMIN
    page.goto(stage.url + "policy#advanced")
    page.wait_for_selector("text=version 1, by root")
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.click("#out-idle")  # browsers ask only whoever did something there
    page.reload()
    assert not asked
    page.wait_for_selector("text=version 1, by root")
    page.click("#out-idle")
    if typed == "form":
        page.fill("#out-idle", "6")
    else:
        put_in_editor(page, "typed: 1\n")
    page.reload()
    assert asked == ["beforeunload"]


def type_evidence(stage: Stage, page: Any, text: str, typed: str) -> None:
    """Type the beginning of the key behind a document, to where the editor offers it."""
    stage.reader = ADMIN
    stage.policy["text"] = text
    page.goto(stage.url + "policy#advanced")
    page.wait_for_selector("text=version 1, by root")
    page.locator(TEXT).focus()
    page.keyboard.press("Control+End")
    page.keyboard.type(typed)
    page.wait_for_selector("#policy-text .cm-tooltip-autocomplete >> text=evidence")
    assert "spare" not in page.inner_text("#policy-text .cm-tooltip-autocomplete")


def choose_process(page: Any) -> None:
    """Take the key that is offered, and then a value of it."""
    page.click("#policy-text .cm-tooltip-autocomplete li:has-text('evidence')")
    page.keyboard.type("pro")
    page.click("#policy-text .cm-tooltip-autocomplete li:has-text('process')")


def test_the_editor_completes_by_the_schema_and_marks_while_typing(stage: Stage, page: Any) -> None:
    type_evidence(stage, page, "pools:\n  cards:\n    spare: 1\n", "    ev")
    assert "How finely use is attributed" in page.inner_text("#policy-text .cm-completionInfo")
    choose_process(page)
    assert in_editor(page) == "pools:\n  cards:\n    spare: 1\n    evidence: process"
    stage.findings = [{"line": 3, "column": 5, "level": "error", "sentence": "Too few."}]
    page.keyboard.type("\n")
    page.wait_for_selector("#policy-text .cm-lintRange-error")
    page.wait_for_selector("#policy-findings >> text=Too few.")


def test_the_editor_completes_within_braces(stage: Stage, page: Any) -> None:
    type_evidence(stage, page, "pools:\n", "  cards: {spare: 1, ev")
    choose_process(page)
    assert in_editor(page) == "pools:\n  cards: {spare: 1, evidence: process"


def test_a_conflict_of_documents_shows_both_sides_and_keeps_the_edit(
    stage: Stage, page: Any
) -> None:
    stage.reader = ADMIN
    page.goto(stage.url + "policy#advanced")
    page.wait_for_selector("text=version 1, by root")
    put_in_editor(page, "mine: 1\n")
    stage.answers["PUT policy"] = (409, CHANGED)
    stage.policy |= {"version": 2, "text": "theirs: 2\n", "author": "joan"}
    stage.versions.append(dict(stage.policy))
    page.click("#policy-save")
    confirm(page)
    page.wait_for_selector("#policy-conflict:has-text('joan saved version 2 meanwhile.')")
    page.wait_for_selector(".gl-version:has-text('Version 2 (in force)')")
    assert page.locator(".gl-line-differs").all_text_contents() == ["theirs: 2\n", "mine: 1\n"]
    assert in_editor(page) == "mine: 1\n"
    stage.answers.clear()
    page.click("text=Save mine over it")
    confirm(page)
    wait_for(lambda: len(stage.called("PUT", "policy")) == 2)
    assert stage.called("PUT", "policy")[1] == {"text": "mine: 1\n", "base_version": 2}
