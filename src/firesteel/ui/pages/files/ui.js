// Times in the reader's zone, and pages that follow what runs. All of it is an addition: without it the pages say the same.
"use strict";
(() => {
  const LEAST = 2000, MOST = 15000; // milliseconds between two looks: longer where the server takes long for one
  const AGAIN = 10000; // milliseconds until a server that would not be listened to is asked again
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const zoned = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

  function localise(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!Number.isNaN(at.getTime())) {
        time.textContent = exact.format(at);
        time.title = zoned.format(at);
      }
    }
  }

  // What was asked of the server last, so that what the reader has folded or the zone has changed is no difference.
  const last = new Map();
  for (const part of document.querySelectorAll("[data-live]")) last.set(part.id, part.innerHTML);

  function exchange(fresh) {
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(part.id);
      if (!other || last.get(part.id) === other.innerHTML) continue;
      last.set(part.id, other.innerHTML);
      const open = [...part.querySelectorAll("details")].map((each) => each.open);
      const scrolled = [...part.querySelectorAll(".scroll, .drawn, pre")].map((each) => [each.scrollLeft, each.scrollTop]);
      const focused = part.contains(document.activeElement) ? place(part, document.activeElement) : -1;
      part.replaceChildren(...other.childNodes);
      localise(part);
      part.querySelectorAll("details").forEach((each, k) => { each.open = open[k] ?? each.open; });
      part.querySelectorAll(".scroll, .drawn, pre").forEach((each, k) => { [each.scrollLeft, each.scrollTop] = scrolled[k] ?? [0, 0]; });
      if (focused >= 0) reachable(part)[focused]?.focus({ preventScroll: true });
    }
    if (document.title !== fresh.title) document.title = fresh.title;
  }

  const reachable = (part) => [...part.querySelectorAll("a, button, input, select, summary, [tabindex]")];
  const place = (part, element) => reachable(part).indexOf(element);

  let paused = false, waiting = false, looking = false, over = false, runs = true, source = null, timer = null;
  const button = document.createElement("button");
  const said = document.createElement("span");

  function tell() {
    said.dataset.on = String(!paused);
    said.textContent = paused ? "Paused" : "Live";
    button.textContent = paused ? "Go on" : "Pause";
  }

  async function look() {
    waiting = false;
    if (paused || looking) return;
    if (document.hidden) { waiting = true; return; }
    looking = true;
    const began = performance.now();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        runs = Boolean(fresh.body.dataset.events);
        exchange(fresh);
      }
    } catch { /* the server is gone: the page stays as it is */ }
    const took = performance.now() - began;
    setTimeout(() => { looking = false; if (waiting) look(); }, Math.min(MOST, Math.max(LEAST, 20 * took)));
  }

  function ask() {
    if (looking || document.hidden || paused) waiting = true;
    else look();
  }

  function listen(address) {
    source = new EventSource(address);
    source.onmessage = (event) => {
      ask();
      try { if (JSON.parse(event.data).is_over) end(); } catch { /* an event without data */ }
    };
    source.addEventListener("end", end);
    source.addEventListener("error", async () => {
      if (source.readyState !== EventSource.CLOSED) return; // the browser connects again
      await look();
      if (runs) setTimeout(() => listen(address), AGAIN); // the server was busy, or away
      else end(); // it was over before one could listen
    });
  }

  function end() {
    source?.close();
    clearInterval(timer);
    over = true;
    ask();
    if (!paused) said.parentElement?.remove();
  }

  localise(document);
  const { events, refresh } = document.body.dataset;
  if (events || refresh) {
    const corner = document.querySelector(".live");
    button.type = "button";
    button.addEventListener("click", () => { paused = !paused; tell(); if (!paused) { ask(); if (over) both.remove(); } });
    const both = document.createElement("span");
    both.append(said, " ", button);
    corner?.append(both);
    tell();
    if (events) listen(events);
    else timer = setInterval(ask, 1000 * Number(refresh));
    document.addEventListener("visibilitychange", () => { if (!document.hidden && waiting) look(); });
  }
})();
