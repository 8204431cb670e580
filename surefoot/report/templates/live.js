"use strict";
// Keeps a page that `surefoot view` serves up to date while the run goes on.
(function () {
  const address = document.body.dataset.live;
  const status = document.getElementById("live-status");
  if (!address || !status) {
    return;
  }
  const PAUSE = 2000; // milliseconds between two questions
  const seen = { after: -1, train: -1, heldout: -1, mark: "" };
  const data = document.getElementById("sample-data");
  if (data) {
    const embedded = JSON.parse(data.textContent);
    const [set, step] = ["set", "step"].map((name) => embedded.fields.indexOf(name));
    for (const row of embedded.rows) {
      seen[row[set]] = Math.max(seen[row[set]], row[step]);
    }
  }

  function say(words, kind) {
    status.className = "live" + (kind ? " " + kind : "");
    if (status.textContent !== words) {
      status.textContent = words;
    }
  }

  function offerReload() {
    if (!document.getElementById("live-reload")) {
      const button = document.createElement("button");
      button.id = "live-reload";
      button.type = "button";
      button.textContent = "Show what is new";
      button.addEventListener("click", () => location.reload());
      status.after(button);
    }
  }

  function take(news) {
    for (const [id, text] of Object.entries(news.texts || {})) {
      const element = document.getElementById(id);
      if (element) {
        element.textContent = text;
      } else {
        offerReload();
      }
    }
    if (news.figures && window.SurefootCurves) {
      const there = window.SurefootCurves.known();
      const fresh = Object.keys(news.figures).filter((key) => !there.includes(key));
      if (fresh.length && !there.length) {
        location.reload(); // the page was opened before the first step
        return;
      }
      if (fresh.length) {
        offerReload();
      }
      const complete = window.SurefootCurves.update(news.figures, news.whole);
      seen.after = complete ? news.step : -1;
    }
    if (news.samples && news.samples.rows.length) {
      if (window.Surefoot && window.Surefoot.addSamples) {
        window.Surefoot.addSamples(news.samples);
      } else {
        offerReload();
      }
    }
    Object.assign(seen, news.seen || {});
    if (news.reload) {
      offerReload();
    }
  }

  async function ask() {
    try {
      const words = new URLSearchParams(seen);
      const answer = await fetch(address + "?" + words, { cache: "no-store" });
      if (!answer.ok) {
        throw new Error(String(answer.status));
      }
      const news = await answer.json();
      take(news);
      say(news.says, news.over ? "over" : "");
    } catch (error) {
      say("The server does not answer; what is shown stays.", "lost");
    }
    setTimeout(ask, document.hidden ? 5 * PAUSE : PAUSE);
  }
  ask();
})();
