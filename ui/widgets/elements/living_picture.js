const ROW = 54, HEIGHT = 42;  // pixels: from one box to the next, and of a box
const curve = (from, to, className, colour) => {
  const half = (from[0] + to[0]) / 2;
  const d = `M${from[0]} ${from[1]} C${half} ${from[1]} ${half} ${to[1]} ${to[0]} ${to[1]}`;
  return draw("path", {d, class: className, stroke: colour});
};
const places = (count, height) => [...Array(count).keys()].map((row) => (height - count * ROW) / 2 + (row + 0.5) * ROW);
const readBy = (domain, data) => {
  const expert = data.experts[domain.expert];
  if (!expert) return " has no expert";
  return domain.own ? ` is read by ${expert.name}` : ` has no expert; nearest: ${expert.name}`;
};
const boxes = (items, ys, className, inside) => {
  const list = make("ul");
  items.forEach((item, row) => {
    const box = make("li", `box ${className(item)}`, ...inside(item));
    box.style.top = `${ys[row] - HEIGHT / 2}px`;
    if (item.look && item.look.mark) box.style.borderColor = item.look.colour;
    list.append(box);
  });
  return list;
};
const wide = (data, open) => {
  const height = Math.max(data.domains.length, data.experts.length, 2) * ROW;
  const at = {domains: places(data.domains.length, height), experts: places(data.experts.length, height)};
  const svg = drawing(height);
  data.domains.forEach((one, row) => {
    const expert = data.experts[one.expert];
    if (!expert) return;
    const to = [38, at.experts[one.expert]];
    svg.append(curve([21, at.domains[row]], to, `band ${one.own ? "" : "nearest"}`, expert.look.colour));
  });
  data.experts.forEach((one, row) => {
    if (data.mixture && one.active) svg.append(curve([66, at.experts[row]], [81, height / 2], "band", one.look.colour));
  });
  const picture = make("div", "wide", svg);
  picture.style.height = `${height}px`;
  picture.append(boxes(data.domains, at.domains, (one) => `domain ${one.own ? "" : "nearest"}`,
    (one) => [link(one, open, "words", one.name), make("span", "unseen", readBy(one, data))]));
  const isAway = (one) => data.mixture && !one.active;
  picture.append(boxes(data.experts, at.experts, (one) => `expert ${isAway(one) ? "away" : ""}`, (one) => {
    const words = make("span", "words", link(one, open, "", one.name));
    if (one.words) words.append(make("br"), make("span", "muted", one.words));
    return [mark(one.look), words];
  }));
  if (data.mixture) {
    const box = make("div", "box mixture", make("b", "", link(data.mixture, open, "", data.mixture.name)));
    data.mixture.words.forEach((words) => box.append(make("span", "muted", words)));
    box.style.top = `${height / 2 - 42}px`;
    picture.append(box);
  }
  return picture;
};
const narrow = (data, open) => {
  const list = make("ul", "narrow");
  data.domains.forEach((one) => {
    const row = make("li", "", link(one, open, "", one.name));
    const expert = data.experts[one.expert];
    if (expert) row.append(one.own ? "→" : "nearest:", mark(expert.look), link(expert, open, "", expert.name));
    else row.append("no expert");
    list.append(row);
  });
  if (data.mixture) {
    const name = link(data.mixture, open, "", data.mixture.name);
    list.append(make("li", "", name, data.mixture.words.join(", ")));
  }
  return list;
};
export default function (component) {
  const {data, parentElement, setTriggerValue} = component;
  const place = parentElement.querySelector(".root");
  if (isDrawn(place, data)) return;
  const open = (id) => setTriggerValue("open", id);
  place.replaceChildren(wide(data, open), narrow(data, open));
}
