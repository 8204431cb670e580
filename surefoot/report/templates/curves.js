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
  function drawAll() {
    // One figure per task, so that the page answers while they are drawn.
    plots.forEach((element) => setTimeout(() => draw(element, element.dataset.figure), 0));
  }

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

  dark.addEventListener("change", () => {
    drawAll();
    drawOther();
  });
  drawAll();
})();
