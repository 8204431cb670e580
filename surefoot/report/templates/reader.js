"use strict";
// The sample reader: tools, list and the sample that is read.
(function () {
  const tools = document.getElementById("reader-tools");
  if (!tools) {
    return;
  }
  const { Store, List, fromPage, make, figure, plural, passes, orders, annotate, isTruncated, describeSample, mark, makeTip } = window.Surefoot;
  const embedded = JSON.parse(document.getElementById("sample-data").textContent);
  const added = []; // packs that came after the page
  const inPage = embedded.packs;
  const store = new Store(embedded, async (number) => (number < inPage ? fromPage(number) : added[number - inPage]));
  const samples = store.samples;
  const article = document.getElementById("reader-sample");
  const status = document.getElementById("reader-status");
  const form = tools.elements;
  const state = { wanted: "", colour: "none", tip: makeTip(document.getElementById("token-tip")) };
  let byPrompt = annotate(samples);
  let current = null;
  let search = 0; // the latest search, so that an older one stops
  let turn = 0; // the latest sample asked for

  const list = new List(
    document.getElementById("reader-list"),
    (sample) => {
      const several = form.step.value === "";
      const place = (several ? "step " + sample.step + " · " : "") + figure(sample.length) + " tokens" + (isTruncated(sample) ? " · truncated" : "") + (sample.newly ? " · newly " + sample.newly : "");
      return [
        make("span", { class: "option-head" }, mark(sample), make("span", {}, "reward " + figure(sample.reward))),
        make("span", { class: "option-text", dir: "auto" }, sample.tail || "(empty)"),
        make("small", {}, place),
      ];
    },
    (sample) => read(sample)
  );

  function fillSelect(select, entries) {
    select.replaceChildren(...entries.map(([value, label]) => make("option", { value: value }, label)));
  }

  function fillSteps() {
    const kept = form.step.value;
    const steps = [...new Set(samples.filter((sample) => sample.set === form.set.value).map((sample) => sample.step))];
    steps.sort((a, b) => a - b);
    fillSelect(form.step, steps.map((step) => [String(step), step.toLocaleString("en")]).concat([["", "all"]]));
    form.step.value = steps.map(String).includes(kept) || (kept === "" && steps.length && form.step.dataset.chosen) ? kept : String(steps[steps.length - 1]);
  }

  async function update() {
    const mine = ++search;
    const { set, step, show, sort } = form;
    state.wanted = form.text.value.toLowerCase();
    const there = samples.filter((sample) => sample.set === set.value && (step.value === "" || sample.step === Number(step.value)));
    let shown = there.filter(passes[show.value]);
    if (state.wanted) {
      status.textContent = "Searching " + plural(shown.length, "sample") + " …";
      shown = await store.matching(shown, state.wanted, () => mine === search);
      if (shown === null || mine !== search) {
        return;
      }
    }
    shown.sort(orders[sort.value]);
    const some = shown.length === there.length ? "" : shown.length.toLocaleString("en") + " of ";
    status.textContent = some + plural(there.length, "sample") + ", " + shown.filter(passes.right).length.toLocaleString("en") + " right";
    for (const button of tools.querySelectorAll("button[data-move]")) {
      button.disabled = !neighbour(Number(button.dataset.move));
    }
    const next = shown.includes(current) ? current : shown[0] || null;
    list.show(shown, next);
    read(next);
  }

  function neighbour(move) {
    const target = form.step.options[form.step.selectedIndex + move];
    return target && target.value !== "" ? target : null;
  }

  async function read(sample, focus) {
    const mine = ++turn;
    current = sample;
    state.tip.hide();
    let parts = [make("p", { class: "nothing", id: "reader-sample-title" }, "No sample passes these filters.")];
    if (sample) {
      try {
        parts = await describeSample(sample, { store, byPrompt, run: embedded.run, state, select: choose });
      } catch (error) {
        parts = [make("p", { class: "nothing", id: "reader-sample-title" }, "This sample cannot be shown: " + error)];
      }
    }
    if (mine === turn) {
      article.replaceChildren(...parts);
      const here = article.querySelector('.column:has([aria-current="true"])');
      if (here) {
        here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.offsetLeft - here.offsetWidth;
      }
      if (focus) {
        article.querySelector(focus).focus();
      }
    }
  }

  // A sample that was chosen outside the list; it may not be in it.
  function choose(sample, focus) {
    list.mark(sample);
    read(sample, focus);
  }

  tools.addEventListener("submit", (event) => event.preventDefault());
  form.set.addEventListener("change", () => {
    fillSteps();
    update();
  });
  form.step.addEventListener("change", () => {
    form.step.dataset.chosen = "1";
    update();
  });
  for (const name of ["show", "sort"]) {
    form[name].addEventListener("change", update);
  }
  let waiting = 0;
  form.text.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(update, 150);
  });
  for (const button of tools.querySelectorAll("button[data-move]")) {
    button.addEventListener("click", () => {
      form.step.value = neighbour(Number(button.dataset.move)).value;
      update();
    });
  }
  document.addEventListener("scroll", () => state.tip.hide(), { passive: true });

  function fillSets() {
    const kept = form.set.value;
    const sets = [["train", "training"], ["heldout", "held-out problems"]].filter(([set]) => samples.some((sample) => sample.set === set));
    fillSelect(form.set, sets);
    form.set.value = sets.some(([set]) => set === kept) ? kept : sets.length ? sets[0][0] : "";
  }

  // Samples that were written after the page was; who reads one goes on reading it.
  window.Surefoot.addSamples = function (table) {
    const atEnd = !neighbour(1);
    store.add(table.fields, table.rows, inPage + added.length);
    added.push(...table.packs);
    embedded.run.versions = table.run.versions;
    byPrompt = annotate(samples);
    const kept = form.step.value;
    fillSets();
    fillSteps();
    if (!atEnd || article.contains(document.activeElement) || kept === "") {
      form.step.value = kept;
    }
    update();
  };

  fillSets();
  fillSteps();
  update();
})();
