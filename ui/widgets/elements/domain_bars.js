const HEADS = ["Text", "", "", "Now", "Change", ""];
const CLASSES = ["", "bars", "number before", "number now", "number", ""];
const head = (data) => make("thead", "", make("tr", "", ...HEADS.map((words, place) => {
  const cell = make("th", CLASSES[place], place === 2 ? data.before : words);
  cell.scope = "col";
  if (!cell.textContent) cell.append(make("span", "unseen", place === 1 ? "Bar" : "Verdict"));
  return cell;
})));
const fresh = (one) => {
  const cells = CLASSES.slice(1).map((name) => make("td", name));
  const row = make("tr", "", make("th", "", mark(one.look), one.name), ...cells);
  row.firstChild.scope = "row";
  const bar = make("div", "bar");
  bar.style.background = one.look.colour;
  row.children[1].append(make("div", "track", bar, make("div", "line")));
  row.children[5].append(make("span", "badge"));
  return row;
};
const fill = (row, one) => {
  const [bar, line] = row.children[1].firstChild.children;
  bar.style.width = `${100 * one.now}%`;
  line.style.left = `calc(${100 * (one.before ?? 0)}% - 1px)`;
  line.hidden = one.before === null;
  one.words.forEach((words, place) => { row.children[2 + place].textContent = words; });
  const badge = row.children[5].firstChild;
  badge.className = `badge ${one.verdict[1]}`;
  badge.textContent = one.verdict[0];
};
export default function (component) {
  const {data, parentElement} = component;
  const place = parentElement.querySelector(".root");
  if (isDrawn(place, data)) return;
  const looks = JSON.stringify([data.before, data.rows.map((one) => [one.name, one.look])]);
  if (place.dataset.looks !== looks) {
    place.dataset.looks = looks;
    const body = make("tbody", "", ...data.rows.map(fresh)), spoken = make("div", "unseen");
    spoken.setAttribute("role", "status");
    place.replaceChildren(make("table", "", head(data), body), spoken);
  }
  const rows = place.querySelectorAll("tbody tr");
  data.rows.forEach((one, number) => fill(rows[number], one));
  place.lastChild.textContent = data.spoken;
}
