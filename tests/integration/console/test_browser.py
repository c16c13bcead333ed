"""The console as people meet it: Debian's Chromium on a gateway that really listens."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from medevac.approvals.approval import ApprovalState
from medevac.fleet.node import Node
from medevac.incident import Line, State, StepKey
from medevac.policy.silences import Holds, Matcher, Silence
from tests.integration.console.conftest import asked, incident_of
from tests.unit.worker.conftest import StubEngine
from worker.stores import Stores

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; Debian has it as `chromium`")

PAGES = (
    "/", "/incidents", "/incidents/inc-1", "/approvals", "/approvals/inc-1-0123abcd",
    "/approvals/inc-1-0123abcd?verdict=reject", "/campaigns", "/guard", "/silences", "/cases",
    "/cases/case-0123456789ab", "/providers", "/audit",
)  # fmt: skip
expect.set_options(timeout=120_000)
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (e) => window.violations.push(e.violatedDirective + e.blockedURI));
"""
LAX = """() => {
  const wrong = [], all = (query) => [...document.querySelectorAll(query)];
  const named = (one) => (one.getAttribute("aria-label") || one.innerText || one.textContent || "").trim();
  if (!document.documentElement.lang) wrong.push("no language");
  if (all("h1").length !== 1) wrong.push(all("h1").length + " h1");
  if (all("main").length !== 1) wrong.push("no main");
  if (location.pathname !== "/login" && (all("header").length !== 1 || all("nav[aria-label]").length !== 1))
    wrong.push("no header or named navigation");
  for (const one of all("input:not([type=hidden], [hidden]), select, textarea, progress"))
    if (!one.labels || !one.labels.length || !one.labels[0].innerText.trim()) wrong.push("no label: " + one.outerHTML);
  for (const one of all("a, button, summary")) if (!named(one)) wrong.push("no name: " + one.outerHTML);
  for (const one of all("table"))
    if (!one.caption || !one.querySelector("th[scope=col]")) wrong.push("a table without caption or headings");
  for (const one of all("[aria-labelledby], [aria-describedby]"))
    for (const id of (one.getAttribute("aria-labelledby") || one.getAttribute("aria-describedby")).split(" "))
      if (!document.getElementById(id)) wrong.push("names nothing: " + id);
  const ids = all("[id]").map((one) => one.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push("twice: " + id);
  let level = 0;
  for (const one of all("h1, h2, h3, h4")) {
    const here = Number(one.tagName[1]);
    if (here > level + 1) wrong.push("skips a level: " + one.innerText);
    level = here;
  }
  return wrong;
}"""
PALE = """() => {
  const part = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const c = rgb(getComputedStyle(one).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const wrong = [];
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || one.matches(".unseen, .skip, option, noscript, script") || !one.offsetParent) continue;
    const [a, b] = [light(rgb(getComputedStyle(one).color)), light(behind(one))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) wrong.push(one.outerHTML.slice(0, 120));
  }
  return wrong;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        sandbox = [] if os.getuid() else ["--no-sandbox"]
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=[*sandbox, "--disable-dev-shm-usage"])
        yield found
        found.close()


Opens = Callable[..., Page]


@pytest.fixture
def opens(browser: Browser, gateway: str) -> Iterator[Opens]:
    """A new visitor's page; at the end, that no page broke its own policy or threw."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def new(**options: Any) -> Page:
        context = browser.new_context(base_url=gateway, **options)
        context.set_default_timeout(120_000)
        context.add_init_script(WATCH)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
        page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(gateway) else None)
        return page

    yield new
    for context in contexts:
        context.close()
    assert wrong == []


def sign_in(page: Page, who: str, to: str = "/") -> None:
    page.goto(to)
    page.get_by_label("Your personal token").fill(f"{who}-token")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(re.compile(re.escape(to.partition("?")[0]) + r"(\?.*)?$"))


def changed(stores: Stores, node: Node, **changes: object) -> None:
    stores.ledger.upsert_incident(incident_of(node, updated_at=datetime.now(UTC), **changes))


def test_a_wrong_token_is_told_and_the_right_one_leads_to_the_map_and_the_incident(opens: Opens, sick: Node) -> None:
    page = opens()
    page.goto("/")
    page.get_by_label("Your personal token").fill("nobodys-token")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("no person has this token")
    page.get_by_label("Your personal token").fill("ada-token")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Fleet")
    mine = page.get_by_role("link", name=f"{sick.name}: waits for people's yes")
    expect(mine.locator("[aria-hidden]")).to_have_text("?")
    mine.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(sick.name)
    expect(page.locator(".timeline")).to_contain_text("mark: done")
    expect(page.get_by_role("heading", name="Passed over")).to_be_visible()


def silence(id: str) -> Silence:
    now = datetime.now(UTC)
    return Silence(id=id, by="otto", reason="we debug it", at=now, until=now + timedelta(hours=2),
                   matcher=Matcher(fault="xid/79"), holds=(Holds.MARK,))  # fmt: skip


def test_silences_follow_the_ledger_and_leave_the_form_alone(opens: Opens, stores: Stores, sick: Node) -> None:
    page = opens()
    sign_in(page, "otto", "/silences")
    expect(page.locator("#live")).to_have_text("live")
    page.get_by_label("Reason").fill("half a rea")
    stores.silences.add(silence("s-1"))
    expect(page.get_by_role("link", name=f"sim-a/{sick.name}")).to_be_visible()
    stores.silences.end("s-1", "ada", datetime.now(UTC))
    expect(page.get_by_text("ended by ada")).to_be_visible()
    expect(page.get_by_label("Reason")).to_have_value("half a rea")


def test_the_page_follows_the_ledger_by_itself(opens: Opens, stores: Stores, sick: Node) -> None:
    fleet, listed, approvals = opens(), opens(), opens()
    sign_in(fleet, "ada")
    sign_in(listed, "vera", "/incidents")
    sign_in(approvals, "grace", "/approvals")
    for page in (fleet, listed, approvals):
        expect(page.locator("#live")).to_have_text("live")
    changed(stores, sick, state=State.ACTING, waiting_for="", rev=1)
    stores.ledger.upsert_approval(asked(sick, state=ApprovalState.WITHDRAWN, waiters=(), rev=2))
    expect(fleet.get_by_role("link", name=f"{sick.name}: being repaired")).to_be_visible()
    expect(listed.locator("tbody")).to_contain_text("acting")
    expect(approvals.locator("#waiting")).to_contain_text("none waits for you")
    expect(approvals.get_by_role("link", name="Approve …")).to_have_count(0)


def test_a_live_update_takes_neither_focus_nor_what_was_opened(opens: Opens, stores: Stores, sick: Node) -> None:
    page = opens()
    sign_in(page, "vera", "/incidents/inc-1")
    expect(page.locator("#live")).to_have_text("live")
    page.locator("#e2 summary").click()
    focused = page.get_by_role("link", name=f"reboot {sick.name} for xid/79")
    focused.focus()
    key = StepKey(incident="inc-1", step="act-reboot")
    stores.ledger.add_lines([Line(key=key, at=datetime.now(UTC), kind="step", text="reboot called")])
    expect(page.locator(".timeline")).to_contain_text("reboot called")
    expect(page.locator("#e2")).to_have_attribute("open", "")
    expect(focused).to_be_focused()


def test_a_link_that_is_pressed_while_the_page_changes_is_followed(opens: Opens, stores: Stores, sick: Node) -> None:
    page = opens()
    sign_in(page, "vera", "/incidents")
    expect(page.locator("#live")).to_have_text("live")
    link = page.get_by_role("link", name=f"{sick.cluster}/{sick.name}")
    link.hover()
    page.mouse.down()
    with page.expect_response(lambda answer: answer.request.headers.get("x-part") == "list") as answered:
        changed(stores, sick, state=State.EVACUATING, waiting_for="", summary="it is being emptied")
    answered.value.finished()
    page.evaluate("() => new Promise((done) => setTimeout(done))")
    page.mouse.up()
    expect(page.get_by_role("heading", level=1)).to_contain_text(sick.name)


def tab_to(page: Page, words: str) -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        if words in page.evaluate("() => document.activeElement.innerText || document.activeElement.id || ''"):
            assert page.evaluate("() => document.activeElement.matches(':focus-visible')")
            return
    raise AssertionError(f"{words} is not reached by keyboard")


def test_an_approver_votes_by_keyboard_alone(opens: Opens, engine: StubEngine, sick: Node) -> None:
    page = opens()
    page.goto("/approvals")
    expect(page.locator("#token")).to_be_focused()
    page.keyboard.type("ada-token")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Approvals")
    tab_to(page, "Approve …")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Approve this?")).to_be_visible()
    expect(page.locator("#approval")).to_contain_text("Destroys job-7 (8 GPUs)", use_inner_text=True)
    assert not engine.votes
    tab_to(page, "reason")
    page.keyboard.type("checked the job")
    tab_to(page, "Yes, approve")
    page.keyboard.press("Enter")
    expect(page.locator(".said")).to_have_text("recorded")
    assert [(vote.voter, vote.verdict, vote.reason) for vote in engine.votes] == [("ada", "approve", "checked the job")]


def test_a_question_shows_times_in_its_readers_zone_also_after_an_update(
    opens: Opens, stores: Stores, sick: Node
) -> None:
    page = opens(timezone_id="Asia/Tokyo")
    sign_in(page, "ada", "/approvals/inc-1-0123abcd")
    expect(page.locator("#live")).to_have_text("live")
    at = asked(sick).expires_at.astimezone(ZoneInfo("Asia/Tokyo"))
    expect(page.locator("#approval")).to_contain_text(f"it is a no at {at:%Y-%m-%d %H:%M} GMT+9")
    stores.ledger.upsert_approval(asked(sick, state=ApprovalState.WITHDRAWN, rev=2))
    expect(page.locator("#approval")).to_contain_text("withdrawn")
    stores.ledger.upsert_incident(incident_of(sick, rev=2))
    expect(page.locator("#approval time.zoned").first).to_contain_text("GMT+9")


def test_a_viewer_is_offered_no_vote(opens: Opens, sick: Node) -> None:
    page = opens()
    sign_in(page, "vera", "/approvals")
    expect(page.get_by_role("heading", name="Waiting for others")).to_be_visible()
    page.goto("/approvals/inc-1-0123abcd?verdict=approve")
    expect(page.get_by_text("It does not wait for you")).to_be_visible()
    expect(page.get_by_role("button", name="Yes, approve")).to_have_count(0)


def test_without_a_script_everything_but_live_updates_works(
    opens: Opens, stores: Stores, engine: StubEngine, sick: Node
) -> None:
    page = opens(java_script_enabled=False)
    sign_in(page, "grace", "/guard")
    page.get_by_label("Scope").fill("cluster/sim-a")
    page.get_by_label("Reason to freeze").fill("smoke")
    page.get_by_role("button", name="Freeze now").click()
    expect(page.get_by_role("status").first).to_be_visible()
    assert [fence.scope for fence in stores.fences.active()] == ["cluster/sim-a"]
    page.goto("/approvals")
    page.get_by_role("link", name="Reject …").click()
    page.get_by_label("Reason").fill("not during the demo")
    page.get_by_role("button", name="Yes, reject").click()
    expect(page.locator(".said")).to_have_text("recorded")
    assert [vote.verdict for vote in engine.votes] == ["reject"]
    page.get_by_role("button", name="Sign grace out").click()
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to medevac")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_and_breaks_no_policy(opens: Opens, stores: Stores, sick: Node, scheme: str) -> None:
    stores.fences.freeze("cluster/sim-b", "otto", "smoke")
    stores.silences.add(silence("s-1"))
    page = opens(color_scheme=scheme)
    page.goto("/login")
    assert page.evaluate(LAX) == []
    sign_in(page, "ada")
    pictures = set()
    for path in PAGES:
        page.goto(path)
        expect(page.locator("#live")).to_have_text("live")
        assert page.evaluate(LAX) == [], path
        assert page.evaluate(PALE) == [], path
        assert page.evaluate("() => window.violations") == [], path
        pictures.add(page.screenshot())
    assert len(pictures) == len(PAGES)
    dark = page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
    assert dark == (scheme == "dark")


def test_what_a_payload_says_stays_words(opens: Opens, stores: Stores, sick: Node) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    changed(stores, sick, summary=evil, waiting_for=evil, fault=evil, rev=2)
    at = datetime.now(UTC)
    key = StepKey(incident="inc-1", step="event", n=2)
    stores.ledger.add_lines([Line(key=key, at=at, kind=evil, text=evil, data={"x": evil})])
    page = opens()
    sign_in(page, "ada", "/incidents/inc-1")
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#now")).to_contain_text("onerror")
    for path in ("/", "/incidents", "/audit"):
        page.goto(path)
        assert page.locator("main img, main script").count() == 0
    assert "owned" not in page.title()
