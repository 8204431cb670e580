"use strict";
// Completions token by token: coloured by a quantity, with every value of a token on hover and on focus.
(function () {
  const { make } = window.Surefoot;
  const NONE = -32768;
  const ORIGINS = ["policy", "tool", "image", "injected", "prompt"];
  const BOUNDS = {
    clip_high: "clipped: ratio above the bound",
    clip_low: "clipped: ratio below the bound",
    clip_dual: "clipped by the second bound",
    truncated_high: "weight truncated from above",
    truncated_low: "weight truncated from below",
    masked: "masked",
  };

  const at = (list, i, scale) => (!list || list[i] === NONE ? null : list[i] / scale);
  const exp = (value) => (value === null ? null : Math.exp(value));
  const bin = (value, edges) => edges.filter((edge) => value >= edge).length;
  const signed = (edges) => (value) => (value < 0 ? "n" : "p") + bin(Math.abs(value), edges);
  const rising = (edges) => (value) => "s" + bin(value, edges);
  const RATIO = [0.01, 0.05, 0.2, 0.5].map((edge) => Math.log(1 + edge));
  const NATS = [0.05, 0.25, 0.5, 1, 2];
  const nats = [["s0", "below 0.05"], ["s1", "0.05"], ["s2", "0.25"], ["s3", "0.5"], ["s4", "1"], ["s5", "2 nats and more"]];
  const ratios = [["n4", "below 0.67"], ["n3", "0.83"], ["n2", "0.95"], ["n0", "1 ± 1 %"], ["p2", "1.05"], ["p3", "1.2"], ["p4", "above 1.5"]];

  // value: of token i, null where there is none; tone: the class of its colour; says: the value in words.
  const QUANTITIES = {
    none: { label: "no colour", value: () => null, known: () => true, tone: () => "", says: () => "", legend: [] },
    advantage: {
      label: "advantage",
      known: (t) => Boolean(t.advantage) || t.rowAdvantage !== null,
      value: (t, i) => (t.advantage ? at(t.advantage, i, 1000) : written(t, i) ? t.rowAdvantage : null),
      tone: signed([0.05, 0.25, 0.5, 1]),
      says: (v) => v.toFixed(3),
      legend: [["n4", "−1 and below"], ["n3", "−0.5"], ["n2", "−0.25"], ["n0", "0"], ["p2", "0.25"], ["p3", "0.5"], ["p4", "1 and above"]],
    },
    ratio: {
      label: "ratio of the last pass",
      note: "The objective's ratio when the token last went through the update. 1: the update had not moved it.",
      known: (t) => Boolean(t.ratio),
      value: (t, i) => at(t.ratio, i, 1000),
      tone: signed(RATIO),
      says: (v) => Math.exp(v).toFixed(3),
      legend: ratios,
    },
    start: {
      label: "trainer against engine",
      note: "Trainer's probability over the engine's, before the update: 1 unless the two compute differently or the weights are of another version.",
      known: (t) => Boolean(t.start),
      value: (t, i) => at(t.start, i, 1000),
      tone: signed(RATIO),
      says: (v) => Math.exp(v).toFixed(3),
      legend: ratios,
    },
    bounds: {
      label: "clipped or not",
      note: "Whether the objective's bound acted on the token in the last pass of the update.",
      known: (t) => Boolean(t.bounds),
      value: (t, i) => t.boundOf.get(i) || (written(t, i) ? "free" : null),
      tone: (v) => (v === "free" ? "c0" : /low|dual/.test(v) ? "c2" : "c1"),
      says: (v) => BOUNDS[v] || (v === "free" ? "no bound acted" : v),
      legend: [["c0", "no bound acted"], ["c1", "bounded from above, or masked"], ["c2", "bounded from below"]],
    },
    entropy: {
      label: "entropy",
      note: "Of the trainer's next-token distribution, in nats.",
      known: (t) => Boolean(t.entropy),
      value: (t, i) => at(t.entropy, i, 100),
      tone: rising(NATS),
      says: (v) => v.toFixed(2) + " nats",
      legend: nats,
    },
    logp: {
      label: "surprise",
      note: "Minus the log-probability that the engine sampled the token with, in nats.",
      known: (t) => Boolean(t.logp),
      value: (t, i) => (at(t.logp, i, 100) === null ? null : -at(t.logp, i, 100)),
      tone: rising(NATS),
      says: (v) => Math.abs(v).toFixed(2) + " nats (probability " + (100 * exp(-v)).toPrecision(3) + " %)",
      legend: nats,
    },
    origin: {
      label: "who wrote it",
      note: "Only what the policy wrote is trained on; everything else is masked.",
      known: () => true,
      value: (t, i) => (t.origin ? ORIGINS[t.origin[i]] || "unknown" : "policy"),
      tone: (v) => ({ policy: "c0", injected: "c1", tool: "c2", image: "c3", prompt: "c3" })[v] || "c3",
      says: (v) => (v === "policy" ? "policy: in the loss" : v + ": masked"),
      legend: [["c0", "policy"], ["c1", "forced on the policy"], ["c2", "tool"], ["c3", "other"]],
    },
    version: {
      label: "weights version",
      known: () => true,
      value: (t, i) => (t.version ? at(t.version, i, 1) : written(t, i) ? t.rowVersion : null),
      tone: (v, t) => "c" + (t.versions.indexOf(v) % 4),
      says: (v) => String(v),
      legend: [],
    },
  };

  const written = (t, i) => !t.origin || t.origin[i] === 0;

  // The tokens of a sample, ready to be shown: `table` as the page holds it.
  function prepare(table, sample, completion) {
    const text = table.text === undefined ? completion + table.rest : table.text;
    const boundOf = new Map();
    for (const [name, places] of Object.entries(table.bounds || {})) {
      places.forEach((place) => boundOf.set(place, boundOf.has(place) ? boundOf.get(place) + ", " + name : name));
    }
    const versions = table.version ? [...new Set(table.version.filter((v) => v !== NONE))].sort((a, b) => a - b) : [sample.version];
    return { ...table, text, boundOf, versions, rowAdvantage: sample.advantage, rowVersion: sample.version };
  }

  function legend(name, tokens) {
    const quantity = QUANTITIES[name];
    const entries = name === "version" ? tokens.versions.map((v, i) => ["c" + (i % 4), "version " + v]) : quantity.legend;
    const list = make("ul", { class: "legend", "aria-label": "Colours: " + quantity.label });
    list.append(...entries.map(([tone, words]) => make("li", {}, make("span", { class: "tk-swatch " + tone, "aria-hidden": "true" }), words)));
    return [list, ...(quantity.note ? [make("p", { class: "note" }, quantity.note)] : [])];
  }

  function told(tokens, i, piece) {
    const lines = [];
    for (const [name, quantity] of Object.entries(QUANTITIES)) {
      const value = name === "none" || !quantity.known(tokens) ? null : quantity.value(tokens, i);
      if (value !== null) {
        lines.push([quantity.label, quantity.says(value)]);
      }
    }
    const shown = piece === "" ? "part of a character" : JSON.stringify(piece);
    return { title: "Token " + (i + 1) + " of " + tokens.sizes.length + ": " + shown, lines };
  }

  // A block of tokens with its legend. One stop of the Tab key; arrow keys go from token to token.
  function view(tokens, chosen, tip) {
    const quantity = QUANTITIES[chosen];
    const pre = make("pre", {
      class: "completion tokens",
      dir: "auto",
      tabindex: "0",
      role: "group",
      "aria-label": "Completion, " + tokens.sizes.length + " tokens; arrow keys go through them",
    });
    let from = 0;
    const pieces = tokens.sizes.map((size) => tokens.text.slice(from, (from += size)));
    const spans = pieces.map((piece, i) => {
      const value = quantity.value(tokens, i);
      const tone = value === null ? "" : " " + quantity.tone(value, tokens);
      const element = make("span", { class: "tk" + tone + (piece === "" ? " partial" : ""), "data-i": String(i) }, piece);
      if (chosen === "bounds" && value !== null && value !== "free") {
        element.classList.add("ruled");
      }
      return element;
    });
    pre.append(...spans);
    let here = -1;
    function show(i) {
      if (here >= 0) {
        spans[here].classList.remove("here");
      }
      here = i;
      if (i >= 0) {
        spans[i].classList.add("here");
        tip.show(spans[i], told(tokens, i, pieces[i]));
      } else {
        tip.hide();
      }
    }
    pre.addEventListener("mouseover", (event) => {
      if (event.target.dataset.i) {
        show(Number(event.target.dataset.i));
      }
    });
    pre.addEventListener("mouseleave", () => show(-1));
    pre.addEventListener("focus", () => show(here < 0 ? 0 : here));
    pre.addEventListener("blur", () => show(-1));
    pre.addEventListener("keydown", (event) => {
      const moves = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: spans.length - 1, ArrowDown: here + 10, ArrowUp: here - 10 };
      if (event.key === "Escape") {
        tip.hide();
      } else if (Object.hasOwn(moves, event.key) && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        show(Math.min(Math.max(moves[event.key], 0), spans.length - 1));
        spans[here].scrollIntoView({ block: "nearest" });
      }
    });
    return pre;
  }

  // The box with a token's values; it is read out when it changes.
  function makeTip(box) {
    return {
      show(element, { title, lines }) {
        const rows = lines.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)));
        box.replaceChildren(make("p", {}, title), make("dl", {}, ...rows));
        box.hidden = false;
        const place = element.getClientRects()[0] || element.getBoundingClientRect();
        const width = box.offsetWidth;
        const height = box.offsetHeight;
        const left = Math.min(Math.max(place.left, 8), document.documentElement.clientWidth - width - 8);
        const below = place.bottom + 6;
        const top = below + height > window.innerHeight ? place.top - height - 6 : below;
        box.style.left = Math.max(left, 8) + "px";
        box.style.top = Math.max(top, 8) + "px";
      },
      hide() {
        box.hidden = true;
      },
    };
  }

  Object.assign(window.Surefoot, { QUANTITIES, prepareTokens: prepare, tokenLegend: legend, tokenView: view, makeTip });
})();
