// Tables that are changed in place: rows by key, cells by column, in the order that was asked for.

import { el, setText } from "./dom.js";

export class Table {
  // Columns: {name, label, text(row, now)} with, where wanted, figure, className(row), note(row, now),
  // open (a cell that is a button), link(row), cell(row) for a cell of its own.
  constructor(table, columns, { caption, onSort, onOpen } = {}) {
    this.columns = columns;
    this.onOpen = onOpen;
    this.rows = new Map();
    this.headings = new Map();
    const heads = columns.map((column) => this.#heading(column, onSort));
    this.body = el("tbody");
    table.replaceChildren(
      el("caption", { class: "visually-hidden" }, caption),
      el("thead", {}, el("tr", {}, ...heads)),
      this.body,
    );
  }

  #heading(column, onSort) {
    const label = column.hidden
      ? el("span", { class: "visually-hidden" }, column.label)
      : onSort && column.value
        ? el("button", { type: "button", class: "sort", onclick: () => onSort(column.name) }, column.label)
        : column.label;
    const heading = el("th", { scope: "col", class: column.figure ? "figure" : null }, label);
    this.headings.set(column.name, heading);
    return heading;
  }

  sortedBy(name, descending) {
    for (const [column, heading] of this.headings) {
      if (column === name) heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    }
  }

  show(rows, now) {
    const shown = new Set(rows.map((row) => row.key ?? row.range ?? row.name));
    for (const [key, made] of this.rows) {
      if (!shown.has(key)) {
        made.row.remove();
        this.rows.delete(key);
      }
    }
    let place = this.body.firstChild;
    for (const row of rows) {
      const key = row.key ?? row.range ?? row.name;
      let made = this.rows.get(key);
      if (!made) this.rows.set(key, (made = this.#make(row)));
      this.#fill(made, row, now);
      if (made.row === place) place = place.nextSibling;
      else this.body.insertBefore(made.row, place);
    }
  }

  #make(row) {
    const cells = this.columns.map((column) => {
      const cell = el("td", { class: [column.figure ? "figure" : null, column.class].filter(Boolean).join(" ") || null, "data-label": column.label });
      if (column.cell) cell.append(column.cell(row));
      else if (column.open) {
        const name = row.range;
        cell.append(el("button", { type: "button", class: "plain", onclick: () => this.onOpen(name) }));
      } else if (column.link) cell.append(el("a", {}));
      else cell.append(el("span"));
      if (column.note) cell.append(el("span", { class: "note" }));
      return cell;
    });
    return { row: el("tr", {}, ...cells), cells };
  }

  #fill(made, row, now) {
    this.columns.forEach((column, at) => {
      const cell = made.cells[at];
      if (column.cell) return column.update?.(cell, row);
      const first = cell.firstChild;
      setText(first, column.text(row, now));
      if (column.link) {
        const target = column.link(row);
        if (target) first.setAttribute("href", target);
        else first.removeAttribute("href");
      }
      if (column.className) {
        const name = column.className(row);
        if (first.className !== name) first.className = name;
      }
      if (column.title) cell.title = column.title(row);
      if (column.note) setText(cell.lastChild, column.note(row, now));
    });
  }
}

// What a filter means: each word must be found in one of the texts; * stands for anything.
export function matcher(filter) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean).map((word) =>
    new RegExp(word.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*")),
  );
  return (texts) => words.every((word) => texts.some((text) => text && word.test(text.toLowerCase())));
}

// Figures the largest first, names in the order of the alphabet; what is not known comes last.
export function sorted(rows, column, descending) {
  const value = column.value;
  const order = descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const left = value(a);
    const right = value(b);
    const unknown = (x) => x === null || x === undefined || x === "";
    if (unknown(left) || unknown(right)) return unknown(left) - unknown(right) || (a.range < b.range ? -1 : 1);
    if (left < right) return -order;
    if (left > right) return order;
    return a.range < b.range ? -1 : a.range > b.range ? 1 : 0;
  });
}
