const row = (one) => {
  const bar = make("div", "bar");
  bar.style.background = one.look.colour;
  bar.style.width = `${100 * one.share}%`;
  const name = make("span", "name", one.name), share = make("span", "", one.words);
  return make("li", "", mark(one.look), name, share, make("div", "track", bar));
};
export default function (component) {
  const {data, parentElement} = component;
  const place = parentElement.querySelector(".root");
  if (!isDrawn(place, data)) place.replaceChildren(make("ul", "", ...data.rows.map(row)));
}
