const make = (name, className, ...inside) => {
  const one = document.createElement(name);
  if (className) one.className = className;
  one.append(...inside);  // text becomes text nodes, never markup
  return one;
};
const draw = (name, attributes, ...inside) => {
  const one = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([key, value]) => one.setAttribute(key, value));
  one.append(...inside);
  return one;
};
const drawing = (height, ...inside) =>
  draw("svg", {viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", "aria-hidden": "true"}, ...inside);
const mark = (look) => {
  const one = make("span", "mark", look.mark);
  one.style.background = look.colour;
  one.style.color = look.letters;
  one.setAttribute("aria-hidden", "true");
  return one;
};
// `open` follows a link inside the studio, so that what the session holds is kept; a new tab follows the address.
const link = (item, open, className, ...inside) => {
  if (!item.href) return make("span", className, ...inside);
  const one = make("a", className, ...inside);
  one.href = item.href;
  one.onclick = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(item.id);
  };
  return one;
};
const drawn = new WeakMap();  // what stands in an element: equal data changes nothing
const isDrawn = (place, data) => {
  const words = JSON.stringify(data);
  if (drawn.get(place) === words) return true;
  drawn.set(place, words);
  return false;
};
