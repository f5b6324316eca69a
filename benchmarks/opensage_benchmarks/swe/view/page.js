
"use strict";
const byId = (id) => document.getElementById(id);
const dataOf = (id) => JSON.parse(byId(id).textContent);
const make = (tag, text = "", kind = "") => {
  const made = document.createElement(tag);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
};
const index = dataOf("index");
const wide = new Set(["task", "status", "resolved", "reason"]);
const at = Object.fromEntries(index.columns.map((name, place) => [name, place]));
for (const name of index.columns) byId("columns").append(make("th", name, wide.has(name) ? "" : "number"));

const kindOf = (line) =>
  /^(diff |--- |\+\+\+ |index )/.test(line) ? "file" : { "+": "add", "-": "del", "@": "hunk" }[line[0]] || "";
const fill = (pre, kind, text) => {
  if (kind !== "patch") { pre.textContent = text; return; }
  for (const line of text.split("\n")) pre.append(make("span", line + "\n", kindOf(line)));
};
const open = new Set(["assistant", "call", "patch"]);
const stepOf = ([kind, title, text]) => {
  const details = make("details"), summary = make("summary"), pre = make("pre");
  details.dataset.kind = kind;
  summary.append(make("b", title));
  const lines = text.split("\n");
  if (text) summary.append(make("span", kind === "patch" ? "" : lines.length > 1 ? lines.length + " lines" : ""));
  details.append(summary);
  if (!text) return details;
  details.append(pre);
  const once = () => { if (!pre.firstChild) fill(pre, kind, text); };
  details.addEventListener("toggle", once);
  if (open.has(kind) && lines.length < 60) { details.open = true; once(); }
  return details;
};
const toggle = (number, row, button) => {
  const shown = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!shown));
  if (shown) { row.nextSibling.remove(); return; }
  const below = make("tr"), cell = make("td", "", "steps");
  cell.colSpan = index.columns.length;
  cell.append(...dataOf("task-" + number).map(stepOf));
  below.append(cell);
  row.after(below);
};
const rows = index.rows.map((cells, number) => {
  const row = make("tr");
  cells.forEach((text, place) => {
    const name = index.columns[place];
    const cell = make("td", place ? text : "", wide.has(name) ? "" : "number");
    if (name === "resolved") cell.className = { yes: "yes", no: "no" }[text] || "";
    if (name === "reason") cell.className = "reason";
    if (!place) {
      const button = make("button", text);
      button.setAttribute("aria-expanded", "false");
      button.addEventListener("click", () => toggle(number, row, button));
      cell.append(button);
    }
    row.append(cell);
  });
  byId("tasks").append(row);
  return row;
});
for (const status of [...new Set(index.rows.map((cells) => cells[at.status]))].sort())
  byId("status").append(make("option", status));

const escaped = (text) => JSON.stringify(text).slice(1, -1)
  .replace(/[<>&\u2028\u2029]/g, (one) => "\\u" + one.charCodeAt(0).toString(16).padStart(4, "0"));
const filter = () => {
  const wanted = byId("search").value.toLowerCase(), raw = escaped(wanted);
  const status = byId("status").value, resolved = byId("resolved").value;
  let count = 0, good = 0;
  index.rows.forEach((cells, number) => {
    const fits = (!status || cells[at.status] === status) && (!resolved || cells[at.resolved] === resolved)
      && (!wanted || cells.join(" ").toLowerCase().includes(wanted)
        || byId("task-" + number).textContent.toLowerCase().includes(raw));
    const row = rows[number], button = row.querySelector("button");
    if (!fits && button.getAttribute("aria-expanded") === "true") toggle(number, row, button);
    row.hidden = !fits;
    count += fits;
    good += fits && cells[at.resolved] === "yes";
  });
  byId("counts").textContent = `${count} of ${rows.length} tasks, ${good} resolved`;
};
let later;
byId("search").addEventListener("input", () => { clearTimeout(later); later = setTimeout(filter, 250); });
byId("status").addEventListener("change", filter);
byId("resolved").addEventListener("change", filter);
byId("filters").addEventListener("submit", (event) => event.preventDefault());
filter();
if (location.hash) {
  const number = index.rows.findIndex((cells) => cells[0] === decodeURIComponent(location.hash.slice(1)));
  if (number >= 0) rows[number].querySelector("button").click();
}
