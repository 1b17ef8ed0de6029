const line = (values) => {
  const low = Math.min(...values), high = Math.max(...values);
  const step = 100 / (values.length - 1), scale = 32 / (high - low || 1);
  const at = (value, place) => `${step * place},${1 + scale * (high - value)}`;
  return drawing(34, draw("polyline", {points: values.map(at).join(" ")}));
};
const card = (one, open) => {
  const place = make("li", "", make("div", "name", mark(one.look), link(one, open, "", one.name)));
  place.style.setProperty("--card-colour", one.look.colour);
  one.badges.forEach(([words, kind]) => place.append(make("span", `badge ${kind}`, words)));
  const words = make("div", "", make("div", "value", one.value), make("div", "muted", one.unit));
  const number = make("div", "number", words);
  if (one.curve.length > 1) number.append(line(one.curve));
  place.append(number, ...one.words.map((line) => make("div", "muted", line)));
  return place;
};
export default function (component) {
  const {data, parentElement, setTriggerValue} = component;
  const place = parentElement.querySelector(".root");
  if (isDrawn(place, data)) return;
  const list = make("ul", "", ...data.cards.map((one) => card(one, (id) => setTriggerValue("open", id))));
  place.replaceChildren(list);
}
