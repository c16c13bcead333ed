// Times in the reader's zone, and live updates: each part of the page that names topics is fetched anew when one changes.
"use strict";
(() => {
  const clock = new Intl.DateTimeFormat("sv-SE", {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", timeZoneName: "short",
  });

  // In the reader's own zone, as chat shows them.
  function zoned(within) {
    for (const one of within.querySelectorAll("time.zoned")) {
      one.title = one.textContent;
      one.textContent = clock.format(new Date(one.dateTime));
    }
  }
  zoned(document);

  const parts = [...document.querySelectorAll("[data-topics]")];
  const status = document.getElementById("live");
  if (!parts.length || !status || !window.EventSource) return;
  const LEAST_MS = 250; // Between two fetches of one part.
  const say = (text) => { if (status.textContent !== text) status.textContent = text; };
  const busy = new Map();

  function typing(part) {
    const at = document.activeElement;
    return at && part.contains(at) && at.matches("input, select, textarea");
  }

  // Replaced between press and release, a link or button would lose the click.
  let released = Promise.resolve();
  addEventListener("pointerdown", () => {
    released = new Promise((done) => {
      for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => setTimeout(done), { once: true });
    });
  }, true);

  function patch(part, html) {
    const fresh = document.createElement("div");
    fresh.innerHTML = html;
    zoned(fresh);
    for (const one of part.querySelectorAll("details[open][id]")) {
      fresh.querySelector(`#${CSS.escape(one.id)}`)?.setAttribute("open", "");
    }
    if (fresh.innerHTML === part.innerHTML) return;
    const at = document.activeElement;
    const key = at && part.contains(at) ? (at.id ? `#${CSS.escape(at.id)}` : at.getAttribute("href") && `a[href="${CSS.escape(at.getAttribute("href"))}"]`) : null;
    part.replaceChildren(...fresh.childNodes);
    if (key) part.querySelector(key)?.focus({ preventScroll: true });
  }

  async function refresh(part) {
    if (busy.has(part)) { busy.set(part, true); return; }
    busy.set(part, false);
    try {
      if (typing(part)) {
        await new Promise((done) => part.addEventListener("focusout", done, { once: true }));
      }
      const answer = await fetch(location.href, { headers: { "X-Part": part.id }, credentials: "same-origin" });
      if (answer.status === 401) { location.reload(); return; }
      if (answer.ok) {
        const html = await answer.text();
        await released;
        patch(part, html);
        say("live");
      } else say("could not be read just now");
    } catch { say("no connection; what you see may be old"); }
    await new Promise((done) => setTimeout(done, LEAST_MS));
    const again = busy.get(part);
    busy.delete(part);
    if (again) refresh(part);
  }

  // What the ledger doesn't tell: nodes, as their clusters have them.
  for (const part of parts) if (part.dataset.every) setInterval(() => refresh(part), Number(part.dataset.every) * 1000);

  function listen() {
    const source = new EventSource("/console/events");
    source.addEventListener("ready", () => { say("live"); parts.forEach(refresh); });
    source.addEventListener("changed", (event) => {
      const topics = event.data.split(" ");
      if (topics.includes("unreadable")) say("the ledger can't be read just now");
      for (const part of parts) {
        if (part.dataset.topics.split(" ").some((topic) => topics.includes(topic))) refresh(part);
      }
    });
    source.addEventListener("error", () => {
      say("no connection; what you see may be old");
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
    });
  }
  listen();
})();
