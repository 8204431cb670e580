"use strict";
// A list box of thousands of rows of which only those in sight are elements.
(function () {
  const { make } = window.Surefoot;
  const SPARE = 6; // rows kept above and below what is in sight

  class List {
    // list: the element with role "listbox"; describe(item) gives a row's children; choose(item) is told of a choice.
    constructor(list, describe, choose) {
      Object.assign(this, { list, describe, choose, items: [], at: -1, rows: new Map() });
      this.space = make("div", { class: "list-space", role: "presentation" });
      list.append(this.space);
      list.addEventListener("scroll", () => this.draw(), { passive: true });
      list.addEventListener("keydown", (event) => this.key(event));
      new ResizeObserver(() => this.draw()).observe(list);
    }

    // Rows have one height, given in rem by the style sheet.
    get height() {
      return 4.75 * parseFloat(getComputedStyle(document.documentElement).fontSize);
    }

    show(items, current) {
      this.items = items;
      this.at = items.indexOf(current);
      this.rows.forEach((row) => row.remove());
      this.rows.clear();
      this.space.style.height = items.length * this.height + "px";
      this.list.style.setProperty("--rows", String(items.length));
      if (this.at >= 0) {
        this.reveal();
      } else {
        this.list.scrollTop = 0;
      }
      this.draw();
    }

    draw() {
      const height = this.height;
      const first = Math.max(Math.floor(this.list.scrollTop / height) - SPARE, 0);
      const last = Math.min(Math.ceil((this.list.scrollTop + this.list.clientHeight) / height) + SPARE, this.items.length);
      for (const [i, row] of this.rows) {
        if ((i < first || i >= last) && i !== this.at) {
          row.remove();
          this.rows.delete(i);
        }
      }
      for (let i = first; i < last; i++) {
        this.row(i);
      }
      if (this.at >= 0) {
        this.list.setAttribute("aria-activedescendant", this.row(this.at).id);
      } else {
        this.list.removeAttribute("aria-activedescendant");
      }
    }

    row(i) {
      if (!this.rows.has(i)) {
        const row = make(
          "div",
          {
            role: "option",
            id: "option-" + this.items[i].order,
            "aria-selected": String(i === this.at),
            "aria-setsize": String(this.items.length),
            "aria-posinset": String(i + 1),
          },
          ...this.describe(this.items[i])
        );
        row.style.top = i * this.height + "px";
        row.addEventListener("click", () => this.go(i));
        this.rows.set(i, row);
        this.space.append(row);
      }
      return this.rows.get(i);
    }

    // Chooses an item, wherever it stands, without telling of it.
    mark(item) {
      const before = this.rows.get(this.at);
      if (before) {
        before.setAttribute("aria-selected", "false");
      }
      this.at = this.items.indexOf(item);
      if (this.at >= 0) {
        this.reveal();
        this.row(this.at).setAttribute("aria-selected", "true");
      }
      this.draw();
    }

    reveal() {
      const above = this.at * this.height;
      if (above < this.list.scrollTop) {
        this.list.scrollTop = above;
      } else if (above + this.height > this.list.scrollTop + this.list.clientHeight) {
        this.list.scrollTop = above + this.height - this.list.clientHeight;
      }
    }

    go(i) {
      this.mark(this.items[i]);
      this.choose(this.items[i]);
    }

    key(event) {
      const last = this.items.length - 1;
      const moves = { ArrowDown: this.at + 1, ArrowUp: this.at - 1, PageDown: this.at + 10, PageUp: this.at - 10, Home: 0, End: last };
      if (last < 0 || !Object.hasOwn(moves, event.key) || event.ctrlKey || event.metaKey || event.altKey) {
        return;
      }
      event.preventDefault();
      this.go(Math.min(Math.max(moves[event.key], 0), last));
    }
  }

  window.Surefoot.List = List;
})();
