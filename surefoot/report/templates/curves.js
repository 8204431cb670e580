"use strict";
// Draws the figures that the page carries as data, in the colours of the reader's scheme.
(function () {
  const embedded = JSON.parse(document.getElementById("figure-data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)");
  const config = { responsive: true, displayModeBar: false, scrollZoom: false, doubleClick: "reset" };

  function coloured(value) {
    if (typeof value === "string") {
      return dark.matches && Object.hasOwn(embedded.dark, value) ? embedded.dark[value] : value;
    }
    if (Array.isArray(value)) {
      return typeof value[0] === "number" ? value.slice() : value.map(coloured);
    }
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item)]));
    }
    return value;
  }

  function draw(element, key) {
    const figure = embedded.figures[key];
    try {
      const layout = coloured(figure.layout);
      layout.dragmode = coarse.matches ? false : "zoom";
      window.Plotly.react(element, coloured(figure.data), layout, config);
    } catch (error) {
      element.textContent = "This curve could not be drawn: " + error;
    }
  }

  const plots = Array.from(document.querySelectorAll(".plot[data-figure]"));
  const drawn = new Set();
  function drawPlot(element) {
    drawn.add(element);
    near.unobserve(element);
    draw(element, element.dataset.figure);
  }
  // A figure is drawn when it comes near the screen, so that the page is there before all its curves are.
  const near = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => setTimeout(() => drawPlot(entry.target), 0)),
    { rootMargin: "400px" }
  );
  function redraw() {
    drawn.forEach((element) => setTimeout(() => drawPlot(element), 0));
  }
  plots.forEach((element) => near.observe(element));
  window.addEventListener("beforeprint", () => plots.forEach(drawPlot));

  const choice = document.getElementById("other-metric");
  const other = document.getElementById("other-plot");
  function drawOther() {
    if (!choice || !document.getElementById("others").open) {
      return;
    }
    const option = choice.selectedOptions[0];
    draw(other, option.value);
    document.getElementById("other-words").textContent = option.textContent + ": " + option.dataset.words;
  }
  if (choice) {
    choice.addEventListener("change", drawOther);
    document.getElementById("others").addEventListener("toggle", drawOther);
  }

  // A choice of what a curve is drawn over.
  for (const choices of document.querySelectorAll("[data-switch]")) {
    const element = document.getElementById(choices.dataset.switch);
    choices.addEventListener("change", (event) => {
      element.dataset.figure = event.target.value;
      draw(element, event.target.value);
    });
  }

  // Newer points of the figures; a figure whose curves are others than before is asked for as a whole.
  function merged(old, fresh) {
    const same = old.data.length === fresh.data.length && old.data.every((trace, i) => trace.name === fresh.data[i].name);
    if (!same) {
      return null;
    }
    const data = fresh.data.map((trace, i) => {
      const keep = trace.x.length ? old.data[i].x.filter((x) => x < trace.x[0]).length : old.data[i].x.length;
      return { ...trace, x: old.data[i].x.slice(0, keep).concat(trace.x), y: old.data[i].y.slice(0, keep).concat(trace.y) };
    });
    return { data, layout: fresh.layout };
  }
  window.SurefootCurves = {
    known: () => Object.keys(embedded.figures),
    update(figures, whole) {
      let complete = true;
      for (const [key, fresh] of Object.entries(figures)) {
        const old = embedded.figures[key];
        const now = whole || !old ? fresh : merged(old, fresh);
        if (now) {
          embedded.figures[key] = now;
        } else {
          complete = false;
        }
      }
      redraw();
      drawOther();
      return complete;
    },
  };

  dark.addEventListener("change", () => {
    redraw();
    drawOther();
  });
})();
