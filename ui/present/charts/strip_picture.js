// The strip of a text as a picture to keep: title, strip, experts and tinted words, as an SVG of its own.
function stripPicture(data, strip) {
  const WIDTH = 1200, EDGE = 40, INNER = WIDTH - 2 * EDGE, LINE = 27, MOST_LINES = 16, FONT = "sans-serif";
  const INK = "#2f2d2b", SOFT = "#5f5c57";
  const printable = (text) => text.replace(/[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, "\ufffd");
  const draw = (name, attributes, text) => {
    const one = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    if (text !== undefined) one.textContent = printable(text);
    return one;
  };
  const ruler = document.createElement("canvas").getContext("2d");
  const widthOf = (text, size) => { ruler.font = `${size}px ${FONT}`; return ruler.measureText(text).width; };
  const fitting = (text, size, width) => {
    if (widthOf(text, size) <= width) return text;
    let end = text.length;
    while (end > 1 && widthOf(`${text.slice(0, end)}\u2026`, size) > width) end -= 1;
    return `${text.slice(0, end)}\u2026`;
  };
  const write = (x, y, text, size, colour, weight = 400) => draw("text", {
    x, y, "font-family": FONT, "font-size": size, "font-weight": weight, fill: colour, "xml:space": "preserve",
  }, text);
  const {tokens, experts, weights, leads, shares} = data, parts = [];
  const title = (data.titles || {}).strip || "Weight of each expert at each token";
  parts.push(write(EDGE, 58, fitting(title, 26, INNER), 26, INK, 700));
  strip = strip.cloneNode(true);
  for (const name of ["role", "aria-label", "class", "style"]) strip.removeAttribute(name);
  for (const [name, value] of Object.entries({x: EDGE, y: 80, width: INNER, height: 140})) strip.setAttribute(name, value);
  parts.push(strip);

  let x = EDGE, y = 252;
  const means = experts.map((_, place) => weights.reduce((sum, row) => sum + row[place], 0) / (weights.length || 1));
  for (const place of experts.map((_, at) => at).sort((a, b) => means[b] - means[a])) {
    const {mark, name, colour, letters} = experts[place];
    const words = fitting(`${name} ${Math.round(100 * means[place])} %`, 16, INNER - 40), width = 34 + widthOf(words, 16) + 24;
    if (x > EDGE && x + width > WIDTH - EDGE) [x, y] = [EDGE, y + LINE];
    parts.push(draw("rect", {x, y: y - 16, width: 26, height: 20, rx: 4, fill: colour}));
    const letter = write(x + 13, y - 1, mark, 13, letters, 700);
    letter.setAttribute("text-anchor", "middle");
    parts.push(letter, write(x + 34, y, words, 16, INK));
    x += width;
  }

  y += 46;
  [x] = [EDGE];
  let line = 1, at = 0;
  const turn = () => { [x, y, line] = [EDGE, y + LINE, line + 1]; };
  const put = (text, expert, share) => {
    const width = widthOf(text, 17);
    if (x > EDGE && x + width > WIDTH - EDGE) turn();
    if (line > MOST_LINES) return;
    const own = {x: x.toFixed(1), width: width.toFixed(1), fill: expert.colour};
    parts.push(draw("rect", {...own, y: y - 18, height: 23, "fill-opacity": (0.08 + 0.22 * share).toFixed(3)}));
    parts.push(draw("rect", {...own, y: y + 5, height: 2.5}), write(x.toFixed(1), y, text, 17, INK));
    x += width;
  };
  for (; at < tokens.length && line <= MOST_LINES; at += 1) {
    for (const piece of tokens[at].replaceAll("\t", "    ").split(/(\n)/)) {
      if (piece === "\n") turn();
      else if (piece) put(fitting(piece, 17, INNER), experts[leads[at]], Math.min(1, Math.max(0, shares[at])));
    }
  }
  const isCut = line > MOST_LINES, height = (isCut ? EDGE + y : y + LINE) + 30;
  const count = `${tokens.length} token${tokens.length === 1 ? "" : "s"}${isCut ? "; the strip shows all of them, the words only the first" : ""}`;
  parts.push(write(EDGE, height - 24, `Expert Workbench \u00b7 ${count}`, 15, SOFT));
  const picture = draw("svg", {width: WIDTH, height, viewBox: `0 0 ${WIDTH} ${height}`});
  picture.append(draw("title", {}, title), draw("rect", {width: WIDTH, height, fill: "#ffffff"}), ...parts);
  return new XMLSerializer().serializeToString(picture);
}
