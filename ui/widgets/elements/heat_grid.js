const head = (one, scope, className) => {
  const words = make("div", className, one.mark ? `${one.mark} ${one.name}` : one.name);
  if (one.colour) words.prepend(make("span", "square"));
  if (one.colour) words.firstChild.style.background = one.colour;
  const cell = make("th", "", words);
  cell.scope = scope;
  return cell;
};
const cellOf = (one, click) => {
  const inside = make(click ? "button" : "span", "cell", one.text), cell = make("td", "", inside);
  Object.assign(cell.style, {background: one.fill, color: one.letters, border: one.frame});
  inside.title = one.says;
  inside.tabIndex = -1;  // Tab reaches one cell, the arrow keys the others
  if (click) inside.setAttribute("aria-label", one.says.replaceAll("\n", ", "));
  inside.onclick = click;
  return cell;
};
const MOVES = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
const move = (event, body) => {
  const at = event.target.closest("td"), step = MOVES[event.key];
  const next = at && step && body.rows[at.parentNode.rowIndex - 2 + step[0]]?.cells[at.cellIndex + step[1]];
  if (!next?.matches("td")) return;
  event.preventDefault();
  at.firstChild.tabIndex = -1;
  reach(next);
};
const reach = (cell, options) => {
  cell.firstChild.tabIndex = 0;
  cell.firstChild.focus(options);
};
export default function (component) {
  const {data, parentElement, setTriggerValue} = component;
  const place = parentElement.querySelector(".root");
  if (isDrawn(place, data)) return;
  const across = make("th", "muted", data.x);
  across.colSpan = data.columns.length;
  const names = data.columns.map((one) => head(one, "col", data.columns.length > 3 ? "many" : ""));
  const corners = [data.number, data.y].map((words) => make("td", "corner muted", words ?? ""));
  const body = make("tbody", "", ...data.cells.map((cells, row) => make("tr", "", head(data.rows[row], "row", ""),
    ...cells.map((one, column) => cellOf(one, data.clicks ? () => setTriggerValue("cell", [column, row]) : null)))));
  const heads = make("thead", "", make("tr", "", corners[0], across), make("tr", "", corners[1], ...names));
  const table = make("table", "", heads, body);
  table.setAttribute("aria-label", data.label);
  const held = place.querySelector(":focus")?.closest("td");  // a click on it draws the table again
  const [down, along] = held ? [held.parentNode.rowIndex, held.cellIndex] : [];
  place.replaceChildren(table);
  body.onkeydown = (event) => move(event, body);
  const same = table.rows[down]?.cells[along];
  if (same) reach(same, {preventScroll: true});
  else if (data.clicks) body.querySelector(".cell").tabIndex = 0;
}
