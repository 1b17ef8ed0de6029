"""What the components of our own share: CSS in the theme's colours, and JavaScript that only ever sets text."""

from __future__ import annotations

# A mark is two letters on the colour of an expert, as on every page (docs/design/README.md).
CSS = """
* { box-sizing: border-box; }
.root { color: var(--st-text-color); font-family: var(--st-font); font-size: 15px; line-height: 1.35;
  container-type: inline-size; }
.mark { display: inline-block; min-width: 1.5em; padding: 1px 4px; border-radius: 4px; font-size: 12px;
  font-weight: 600; text-align: center; }
.mark:empty { display: none; }
.muted { color: var(--muted); font-size: 13.5px; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
a { color: inherit; text-decoration: none; }
a:hover { text-decoration: underline; }
a:focus-visible { outline: 2px solid currentColor; outline-offset: 1px; }
"""

# `open` follows a link inside the studio, so that what the session holds is kept; a new tab follows the address.
JS = """
const make = (name, className, ...inside) => {
  const one = document.createElement(name);
  if (className) one.className = className;
  one.append(...inside);  // text becomes text nodes, never markup
  return one;
};
const mark = (look) => {
  const one = make("span", "mark", look.mark);
  one.style.background = look.colour;
  one.style.color = look.letters;
  one.setAttribute("aria-hidden", "true");
  return one;
};
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
"""
