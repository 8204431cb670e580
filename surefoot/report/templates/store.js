"use strict";
// The samples of the page: a row for each, and packs of texts and of tokens that are opened when they are needed.
window.Surefoot = (function () {
  const OPEN_PACKS = 12; // how many stay open; one is some hundred kilobytes

  class Store {
    constructor(embedded, packText) {
      this.samples = [];
      this.packText = packText;
      this.open = new Map();
      this.add(embedded.fields, embedded.rows, 0);
    }

    // Rows as the page has them; `offset` is what their packs are numbered from.
    add(fields, rows, offset) {
      for (const row of rows) {
        const sample = {};
        fields.forEach((field, i) => (sample[field] = row[i]));
        sample.text = [sample.text[0] + offset, sample.text[1]];
        sample.tokens = sample.tokens && [sample.tokens[0] + offset, sample.tokens[1]];
        sample.order = this.samples.length;
        this.samples.push(sample);
      }
    }

    async pack(number) {
      if (this.open.has(number)) {
        const found = this.open.get(number);
        this.open.delete(number); // to the end of the order: used last
        this.open.set(number, found);
        return found;
      }
      const opened = this.packText(number).then(unpacked);
      this.open.set(number, opened);
      if (this.open.size > OPEN_PACKS) {
        this.open.delete(this.open.keys().next().value);
      }
      return opened;
    }

    async words(sample) {
      const [prompt, completion, answer, note] = (await this.pack(sample.text[0]))[sample.text[1]];
      return { prompt, completion, answer, note };
    }

    async tokens(sample) {
      return sample.tokens && (await this.pack(sample.tokens[0]))[sample.tokens[1]];
    }

    // The samples whose texts hold `wanted`, whatever the case; packs are opened one after another and not kept.
    async matching(samples, wanted, goesOn) {
      const byPack = new Map();
      for (const sample of samples) {
        const there = byPack.get(sample.text[0]);
        there ? there.push(sample) : byPack.set(sample.text[0], [sample]);
      }
      const found = new Set();
      for (const [number, members] of byPack) {
        if (!goesOn()) {
          return null;
        }
        const texts = this.open.has(number) ? await this.open.get(number) : await this.packText(number).then(unpacked);
        for (const sample of members) {
          if (texts[sample.text[1]].some((text) => text.toLowerCase().includes(wanted))) {
            found.add(sample);
          }
        }
      }
      return samples.filter((sample) => found.has(sample));
    }
  }

  // The text of a pack of the page. They stand behind the scripts with the last first, so that one is whole when the one
  // before it by number has begun, or when the page is.
  async function fromPage(number) {
    const there = (n) => document.getElementById("pack-" + n);
    while (document.readyState === "loading" && !(there(number) && there(number - 1))) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return there(number).textContent;
  }

  async function unpacked(base64) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

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

  function plural(count, word) {
    return count.toLocaleString("en") + " " + word + (count === 1 ? "" : "s");
  }

  return { Store, fromPage, make, figure, plural };
})();
