"use strict";
// One sample in full. What a model wrote enters the page through text nodes only.
(function () {
  const { make, figure, keyOf, isTruncated, isGraded, QUANTITIES, prepareTokens, tokenLegend, tokenView } = window.Surefoot;
  const COLUMNS = 8; // answers side by side

  function mark(sample) {
    if (sample.correct === true) {
      return make("span", { class: "mark right" }, "✓ right");
    }
    if (sample.correct === false) {
      return make("span", { class: "mark wrong" }, "✗ wrong");
    }
    return make("span", { class: "mark none" }, isGraded(sample) ? "reward only" : "– " + (sample.status === "invalid" ? "invalid reward" : sample.status));
  }

  function highlighted(text, wanted) {
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

  function block(title, text, wanted, kind) {
    const pre = make("pre", { dir: "auto", class: kind || "" });
    pre.append(...highlighted(text, wanted));
    return make("section", { class: "part" }, make("h4", {}, title), pre);
  }

  // The completion: plain, or token by token where its tokens are kept.
  function completion(words, table, sample, state) {
    const section = make("section", { class: "part" }, make("h4", {}, "Completion"));
    if (!table) {
      const pre = make("pre", { dir: "auto", class: "completion" });
      pre.append(...highlighted(words.completion, state.wanted));
      section.append(pre);
    } else {
      const tokens = prepareTokens(table, sample, words.completion);
      const select = make("select", { name: "colour" });
      for (const [name, quantity] of Object.entries(QUANTITIES)) {
        const entry = make("option", { value: name }, quantity.label + (quantity.known(tokens) ? "" : " (not recorded)"));
        entry.disabled = !quantity.known(tokens);
        select.append(entry);
      }
      select.value = QUANTITIES[state.colour].known(tokens) ? state.colour : "none";
      const below = make("div", {});
      const draw = () => {
        const legend = select.value === "none" ? [] : tokenLegend(select.value, tokens);
        below.replaceChildren(...legend, tokenView(tokens, select.value, state.tip));
      };
      select.addEventListener("change", () => {
        state.colour = select.value;
        draw();
      });
      draw();
      section.firstChild.after(make("label", { class: "pick" }, "Colour tokens by ", select), below);
    }
    if (isTruncated(sample)) {
      section.append(make("p", { class: "cut" }, "Cut here: the budget of tokens ran out before the policy ended its answer."));
    }
    return section;
  }

  function numbers(sample) {
    const entries = [
      ["Reward", sample.reward],
      ...Object.entries(sample.components).map(([name, value]) => ["Reward: " + name, value]),
      ...(sample.advantage === null ? [] : [["Advantage", sample.advantage]]),
      ["Status", sample.status],
      ["Finish", sample.finish],
      ["Tokens", sample.length],
      ...(sample.entropy === null ? [] : [["Mean entropy", sample.entropy]]),
      ["Weights version", sample.version],
      ["Seed", sample.seed],
    ];
    const details = make("dl", { class: "details" });
    for (const [name, value] of entries) {
      details.append(make("div", {}, make("dt", {}, name), make("dd", {}, figure(value))));
    }
    return details;
  }

  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'");

  // The command that makes the sample again, and whether the weights for it are kept.
  function again(sample, run) {
    const words = ["surefoot", "sample", quoted(run.folder), "--step", sample.step, "--prompt", quoted(sample.prompt_id), "--sample", sample.sample_id];
    if (sample.set === "heldout") {
      words.push("--heldout");
    }
    const code = make("code", { class: "command", tabindex: "0" }, words.join(" "));
    const kept = run.versions.includes(sample.version);
    const note = kept ? "The weights of version " + sample.version + " are kept." : "The weights of version " + figure(sample.version) + " were not kept when this page was written (checkpoint.every, checkpoint.keep_last).";
    const parts = [make("h4", {}, "Make it again from its seed"), code];
    if (navigator.clipboard) {
      const button = make("button", { type: "button" }, "Copy");
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      });
      parts.push(button);
    }
    return make("section", { class: "part again" }, ...parts, make("p", { class: "note" }, note));
  }

  function siblings(sample, group, select) {
    if (group.length < 2) {
      return [];
    }
    const row = make("div", { class: "siblings" });
    for (const one of group) {
      const button = make("button", { type: "button" }, mark(one), " " + figure(one.reward));
      if (one === sample) {
        button.setAttribute("aria-current", "true");
      }
      button.addEventListener("click", () => select(one, '.siblings button[aria-current="true"]'));
      row.append(button);
    }
    return [make("section", { class: "part" }, make("h4", {}, "All samples of this prompt at this step"), row)];
  }

  // Which steps stand side by side: the first, the last and the one that is read, the others evenly between.
  function chosenSteps(steps, here) {
    if (steps.length <= COLUMNS) {
      return steps;
    }
    const picked = new Set([here]);
    for (let i = 0; i < COLUMNS - 1; i++) {
      picked.add(steps[Math.round((i * (steps.length - 1)) / (COLUMNS - 2))]);
    }
    return [...picked].sort((a, b) => a - b);
  }

  function overTraining(sample, byStep, state, store, select) {
    const steps = [...byStep.keys()];
    if (steps.length < 2) {
      return [];
    }
    const columns = make("div", { class: "columns", role: "region", tabindex: "0", "aria-label": "Answers of this prompt over training" });
    for (const step of chosenSteps(steps, sample.step)) {
      const group = byStep.get(step);
      const one = step === sample.step ? sample : group.find((other) => other.sample_id === sample.sample_id) || group[0];
      const right = group.filter((other) => other.correct === true).length;
      const share = group.length > 1 ? right + " of " + group.length + " right" : "";
      const pre = make("pre", { dir: "auto" }, "…");
      store.words(one).then((words) => pre.replaceChildren(...highlighted(words.completion, state.wanted)));
      const button = make("button", { type: "button" }, "step " + step.toLocaleString("en"));
      if (one === sample) {
        button.setAttribute("aria-current", "true");
      }
      button.addEventListener("click", () => select(one, '.columns button[aria-current="true"]'));
      const head = make("div", { class: "column-head" }, button, mark(one), make("small", {}, share));
      columns.append(make("div", { class: "column" }, head, pre));
    }
    const left = steps.length - columns.children.length;
    const note = left > 0 ? [make("p", { class: "note" }, left + " other steps of this prompt are in the list.")] : [];
    return [make("section", { class: "part" }, make("h4", {}, "This prompt over training"), columns, ...note)];
  }

  // Everything about a sample. `context`: store, byPrompt, run, state (wanted, colour, tip), select(sample, focus).
  async function describeSample(sample, context) {
    const { store, byPrompt, run, state, select } = context;
    const [words, table] = await Promise.all([store.words(sample), store.tokens(sample)]);
    const byStep = byPrompt.get(keyOf(sample)) || new Map([[sample.step, [sample]]]);
    const newly = sample.newly ? [make("span", { class: "badge" }, "newly " + sample.newly)] : [];
    const where = (sample.set === "heldout" ? "held-out" : "training") + ", step " + sample.step + ", prompt " + sample.prompt_id + ", sample " + figure(sample.sample_id);
    return [
      make("h3", { class: "sample-title", id: "reader-sample-title" }, mark(sample), "reward " + figure(sample.reward), ...newly),
      make("p", { class: "sample-where" }, where),
      block("Prompt", words.prompt, state.wanted),
      completion(words, table, sample, state),
      block("Expected answer", words.answer, state.wanted),
      ...(words.note ? [block("What the grader says", words.note, state.wanted)] : []),
      numbers(sample),
      ...siblings(sample, byStep.get(sample.step), select),
      ...overTraining(sample, byStep, state, store, select),
      again(sample, run),
    ];
  }

  Object.assign(window.Surefoot, { describeSample, mark });
})();
