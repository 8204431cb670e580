"use strict";
// The sample reader. What a model wrote enters the page through text nodes only.
(function () {
  const tools = document.getElementById("reader-tools");
  if (!tools) {
    return;
  }
  const embedded = JSON.parse(document.getElementById("sample-data").textContent);
  const samples = embedded.rows.map((row, order) => {
    const sample = Object.fromEntries(embedded.fields.map((field, i) => [field, row[i]]));
    sample.prompt = embedded.prompts[sample.prompt];
    sample.order = order;
    return sample;
  });
  const list = document.getElementById("reader-list");
  const more = document.getElementById("reader-more");
  const article = document.getElementById("reader-sample");
  const status = document.getElementById("reader-status");
  const PAGE = 100;
  let shown = []; // what passes the filters, in order
  let listed = 0; // how many of them are in the list
  let current = null;

  const isTruncated = (sample) => sample.finish === "length";
  const isGraded = (sample) => ["", "ok", "no_answer"].includes(sample.status);
  const passes = {
    all: () => true,
    right: (sample) => sample.correct === true,
    wrong: (sample) => sample.correct === false,
    truncated: isTruncated,
    no_answer: (sample) => sample.status === "no_answer",
    failed: (sample) => !isGraded(sample),
  };
  // Samples without a reward stand last in either direction.
  const rank = (sample, sign) => (sample.reward === null ? -Infinity : sign * sample.reward);
  const byRank = (sign) => (a, b) => {
    const x = rank(a, sign);
    const y = rank(b, sign);
    return x === y ? a.order - b.order : x < y ? 1 : -1;
  };
  const orders = {
    order: (a, b) => a.order - b.order,
    high: byRank(1),
    low: byRank(-1),
    long: (a, b) => (b.length || 0) - (a.length || 0) || a.order - b.order,
    short: (a, b) => (a.length || 0) - (b.length || 0) || a.order - b.order,
  };

  function make(tag, properties, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties || {})) {
      if (name === "class") {
        element.className = value;
      } else {
        element.setAttribute(name, value);
      }
    }
    element.append(...children);
    return element;
  }

  function figure(value) {
    if (value === null || value === undefined || value === "") {
      return "—";
    }
    return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(4))) : String(value);
  }

  function mark(sample) {
    if (sample.correct === true) {
      return make("span", { class: "mark right" }, "✓ right");
    }
    if (sample.correct === false) {
      return make("span", { class: "mark wrong" }, "✗ wrong");
    }
    return make("span", { class: "mark none" }, isGraded(sample) ? "reward only" : "– " + (sample.status === "invalid" ? "invalid reward" : sample.status));
  }

  function tail(text) {
    const lines = text.trim().split("\n");
    const last = lines[lines.length - 1].trim();
    return (last.length > 90 ? "…" + last.slice(-90) : last) || "(empty)";
  }

  function plural(count, word) {
    return count.toLocaleString("en") + " " + word + (count === 1 ? "" : "s");
  }

  function fillSelect(select, entries) {
    select.replaceChildren(...entries.map(([value, label]) => make("option", { value: value }, label)));
  }

  function fillSteps() {
    const kept = tools.elements.step.value;
    const steps = [...new Set(samples.filter((sample) => sample.set === tools.elements.set.value).map((sample) => sample.step))];
    steps.sort((a, b) => a - b);
    fillSelect(tools.elements.step, steps.map((step) => [String(step), step.toLocaleString("en")]).concat([["", "all"]]));
    tools.elements.step.value = steps.map(String).includes(kept) ? kept : String(steps[steps.length - 1]);
  }

  function update() {
    const set = tools.elements.set.value;
    const step = tools.elements.step.value;
    const pass = passes[tools.elements.show.value];
    const text = tools.elements.text.value.toLowerCase();
    const there = samples.filter((sample) => sample.set === set && (step === "" || sample.step === Number(step)));
    shown = there.filter(
      (sample) => pass(sample) && (!text || [sample.completion, sample.prompt, sample.answer, sample.note].some((part) => part.toLowerCase().includes(text)))
    );
    shown.sort(orders[tools.elements.sort.value]);
    const some = shown.length === there.length ? "" : shown.length.toLocaleString("en") + " of ";
    const right = shown.filter(passes.right).length.toLocaleString("en");
    status.textContent = some + plural(there.length, "sample") + ", " + right + " right";
    for (const button of tools.querySelectorAll("button[data-move]")) {
      button.disabled = !neighbour(Number(button.dataset.move));
    }
    listed = 0;
    list.replaceChildren();
    list.scrollTop = 0;
    extend();
    select(shown.slice(0, listed).includes(current) ? current : shown[0] || null);
  }

  function neighbour(move) {
    const choice = tools.elements.step;
    const target = choice.options[choice.selectedIndex + move];
    return target && target.value !== "" ? target : null;
  }

  function option(sample) {
    const several = tools.elements.step.value === "";
    const place = (several ? "step " + sample.step + " · " : "") + figure(sample.length) + " tokens" + (isTruncated(sample) ? " · truncated" : "");
    const element = make(
      "div",
      { role: "option", id: "option-" + sample.order, "aria-selected": "false" },
      make("span", { class: "option-head" }, mark(sample), make("span", {}, "reward " + figure(sample.reward))),
      make("span", { class: "option-text", dir: "auto" }, tail(sample.completion)),
      make("small", {}, place)
    );
    element.addEventListener("click", () => select(sample));
    return element;
  }

  function extend() {
    const next = shown.slice(listed, listed + PAGE);
    list.append(...next.map(option));
    listed += next.length;
    more.hidden = listed >= shown.length;
    more.textContent = "Show more (" + (shown.length - listed).toLocaleString("en") + " left)";
  }

  function select(sample) {
    const before = list.querySelector('[aria-selected="true"]');
    if (before) {
      before.setAttribute("aria-selected", "false");
    }
    current = sample;
    if (!sample) {
      list.removeAttribute("aria-activedescendant");
      article.replaceChildren(make("p", { class: "nothing", id: "reader-sample-title" }, "No sample passes these filters."));
      return;
    }
    const element = document.getElementById("option-" + sample.order);
    if (element) {
      element.setAttribute("aria-selected", "true");
      list.setAttribute("aria-activedescendant", element.id);
      reveal(element);
    } else {
      list.removeAttribute("aria-activedescendant");
    }
    article.replaceChildren(...describe(sample));
  }

  function reveal(element) {
    // Scrolls the list alone: scrollIntoView would move the page as well.
    const above = element.offsetTop - list.offsetTop;
    if (above < list.scrollTop) {
      list.scrollTop = above;
    } else if (above + element.offsetHeight > list.scrollTop + list.clientHeight) {
      list.scrollTop = above + element.offsetHeight - list.clientHeight;
    }
  }

  function block(title, text, kind) {
    const pre = make("pre", { dir: "auto", class: kind || "" });
    pre.append(...highlighted(text));
    return make("section", { class: "part" }, make("h4", {}, title), pre);
  }

  function highlighted(text) {
    const wanted = tools.elements.text.value.toLowerCase();
    const lower = text.toLowerCase();
    // Lower case can be longer than the text ('İ'): then the places do not match and nothing is marked.
    if (!wanted || lower.length !== text.length) {
      return text ? [text] : [];
    }
    const parts = [];
    let from = 0;
    for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
      parts.push(text.slice(from, at), make("mark", {}, text.slice(at, at + wanted.length)));
      from = at + wanted.length;
    }
    parts.push(text.slice(from));
    return parts.filter((part) => part !== "");
  }

  function describe(sample) {
    const where = (sample.set === "heldout" ? "held-out" : "training") + ", step " + sample.step + ", prompt " + sample.prompt_id + ", sample " + figure(sample.sample_id);
    const completion = block("Completion", sample.completion, "completion");
    if (isTruncated(sample)) {
      completion.append(make("p", { class: "cut" }, "Cut here: the budget of tokens ran out before the policy ended its answer."));
    }
    const numbers = [
      ["Reward", sample.reward],
      ...Object.entries(sample.components).map(([name, value]) => ["Reward: " + name, value]),
      ...(sample.advantage === null ? [] : [["Advantage", sample.advantage]]),
      ["Status", sample.status],
      ["Finish", sample.finish],
      ["Tokens", sample.length],
      ["Weights version", sample.version],
      ["Seed", sample.seed],
    ];
    const details = make("dl", { class: "details" });
    for (const [name, value] of numbers) {
      details.append(make("div", {}, make("dt", {}, name), make("dd", {}, figure(value))));
    }
    const parts = [
      make("h3", { class: "sample-title", id: "reader-sample-title" }, mark(sample), "reward " + figure(sample.reward)),
      make("p", { class: "sample-where" }, where),
      block("Prompt", sample.prompt),
      completion,
      block("Expected answer", sample.answer),
    ];
    if (sample.note) {
      parts.push(block("What the grader says", sample.note));
    }
    parts.push(details, ...siblings(sample));
    return parts;
  }

  function siblings(sample) {
    const group = samples.filter((one) => one.set === sample.set && one.step === sample.step && one.prompt_id === sample.prompt_id && one.prompt === sample.prompt);
    if (group.length < 2) {
      return [];
    }
    const row = make("div", { class: "siblings" });
    for (const one of group) {
      const button = make("button", { type: "button" }, mark(one), " " + figure(one.reward));
      if (one === sample) {
        button.setAttribute("aria-current", "true");
      }
      button.addEventListener("click", () => {
        select(one);
        article.querySelector('.siblings button[aria-current="true"]').focus();
      });
      row.append(button);
    }
    return [make("section", { class: "part" }, make("h4", {}, "All samples of this prompt"), row)];
  }

  list.addEventListener("keydown", (event) => {
    const at = Math.min(shown.indexOf(current), listed - 1);
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 10, PageUp: at - 10, Home: 0, End: listed - 1 };
    if (!shown.length || !Object.hasOwn(moves, event.key) || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    event.preventDefault();
    const target = Math.min(Math.max(moves[event.key], 0), shown.length - 1);
    if (target >= listed) {
      extend();
    }
    select(shown[target]);
  });
  more.addEventListener("click", extend);
  tools.addEventListener("submit", (event) => event.preventDefault());
  tools.elements.set.addEventListener("change", () => {
    fillSteps();
    update();
  });
  for (const name of ["step", "show", "sort"]) {
    tools.elements[name].addEventListener("change", update);
  }
  let waiting = 0;
  tools.elements.text.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(update, 150);
  });
  for (const button of tools.querySelectorAll("button[data-move]")) {
    button.addEventListener("click", () => {
      tools.elements.step.value = neighbour(Number(button.dataset.move)).value;
      update();
    });
  }

  const sets = [["train", "training"], ["heldout", "held-out problems"]].filter(([set]) => samples.some((sample) => sample.set === set));
  fillSelect(tools.elements.set, sets);
  fillSteps();
  update();
})();
