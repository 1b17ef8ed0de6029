const NAMED = 7, LEAST_WEIGHT = 0.005;  // experts named at a token: so many, and all of this weight
const FULL_NATS = 3;  // the difference at which a tint is at its strongest

function drawTokens(root, data, onSwitch) {
  const SVG = "http://www.w3.org/2000/svg", COLUMNS = 160;
  const make = (tag, name, text) => {
    const one = document.createElement(tag);
    if (name) one.className = name;
    if (text !== undefined) one.textContent = text;
    return one;
  };
  const minus = (text) => text.replace("-", "\u2212");
  const percent = (share) => share > 0 && share < 0.005 ? "< 1 %" : `${Math.round(100 * share)} %`;
  const nats = (value) => minus((value > 0 ? "+" : "") + value.toFixed(2)) + " nats";
  const tint = (share) => `${(8 + 22 * Math.min(1, Math.max(0, share))).toFixed(1)}%`;
  const visible = (text) => text.replaceAll("\n", "\u23ce").replaceAll("\t", "\u21e5");
  const tokens = (data && data.tokens) || [], weights = (data && data.weights) || null;
  const experts = (data && data.experts) || [], differences = (data && data.differences) || [];
  const chip = (expert) => {
    const one = make("span", "tv-mark", expert.mark || "\u25cf");
    one.style.background = expert.mark ? expert.colour : "none";
    one.style.color = expert.mark ? expert.letters : expert.colour;
    one.setAttribute("aria-hidden", "true");
    return one;
  };

  const active = root.getRootNode().activeElement, focused = active && active.dataset.expert;
  // The frame stays as long as the parts are the same, so that focus and selection outlive new tokens.
  const wanted = JSON.stringify([data && data.parts, data && data.titles, data && data.captions, data && data.before, !!weights]);
  let state = root.tokenView;
  if (!state || state.wanted !== wanted || !root.contains(state.text)) {
    root.replaceChildren();
    state = root.tokenView = {wanted, keys: [], nodes: [], at: -1};
    state.text = make("div", "tv-text");
    state.strip = make("div", "tv-strip");
    state.save = make("div", "tv-save");
    for (const [words, type, ending] of [["Save as PNG", "image/png", "png"], ["Save as SVG", "image/svg+xml", "svg"]]) {
      const button = make("button", "", words);
      button.type = "button";
      button.dataset.ending = ending;
      button.onclick = () => saveFile({text: state.picture(), type, file_name: `strip.${ending}`});
      state.save.append(button);
    }
    state.legend = make("ul");
    state.detail = make("div");
    state.now = make("span", "tv-hidden");
    state.now.setAttribute("role", "status");
    for (const part of (data && data.parts) || []) {
      const title = (data.titles || {})[part], last = root.lastElementChild;
      const section = title || !last || !last.classList.contains("titled") ? make("section") : last;
      if (title) {
        section.classList.add("titled");
        section.append(make("h2", "", title));
      }
      if ((data.captions || {})[part]) section.append(make("p", "", data.captions[part]));
      section.append(state[part]);
      if (part === "strip" && weights) section.append(state.save);
      root.append(section);
    }
    root.append(state.now);
    if (!state.detail.isConnected && !root.contains(state.detail)) {
      state.detail.className = "tv-float";
      state.detail.hidden = true;
      root.append(state.detail);
      state.floats = true;
    }
    for (const {kind, who, text} of (data && data.before) || []) {
      const passage = make("span", kind);
      if (who) passage.append(make("b", "", who), " ");
      passage.append(text);
      state.text.append(passage);
    }
    state.after = make("span");
    state.text.append(state.after);
    state.text.tabIndex = 0;
    state.text.setAttribute("role", "group");
  }
  state.after.textContent = (data && data.after) || "";
  state.text.classList.toggle("tv-differences", !weights);
  state.text.setAttribute("aria-label", `${(data && data.label) || "Text"}. Arrow keys go from token to token.`);

  // Words: what is as before stays as it is.
  const leads = (data && data.leads) || [], shares = (data && data.shares) || [];
  const keyOf = (at) => {
    if (!weights) return `${tokens[at]}|${differences[at]}`;
    const expert = experts[leads[at]], isFirst = at === 0 || leads[at] !== leads[at - 1];
    return JSON.stringify([tokens[at], expert, shares[at], isFirst]);
  };
  let same = 0;
  while (same < tokens.length && state.keys[same] === keyOf(same)) same += 1;
  for (const nodes of state.nodes.splice(same)) nodes.forEach((one) => one.remove());
  state.keys.length = same;
  for (let at = same; at < tokens.length; at += 1) {
    const token = make("span", "tv-token", tokens[at]), nodes = [token];
    token.dataset.at = at;
    if (weights) {
      const expert = experts[leads[at]];
      token.style.background = `color-mix(in srgb, ${expert.colour} ${tint(shares[at])}, transparent)`;
      token.style.borderBottomColor = expert.colour;
      if (expert.mark && (at === 0 || leads[at] !== leads[at - 1])) {
        nodes.unshift(make("sup", "", expert.mark));
        nodes[0].setAttribute("aria-hidden", "true");
      }
    } else if (Math.abs(differences[at]) >= 0.005) {
      token.classList.add(differences[at] < 0 ? "tv-worse" : "tv-better");
      token.style.setProperty("--tv-tint", tint(Math.abs(differences[at]) / FULL_NATS));
    }
    state.after.before(...nodes);
    state.nodes.push(nodes);
    state.keys.push(keyOf(at));
  }

  const means = experts.map((_, place) => weights.reduce((sum, row) => sum + row[place], 0) / (weights.length || 1));

  if (weights && root.contains(state.strip)) {
    const count = Math.min(weights.length, COLUMNS), columns = [];
    for (let place = 0; place < count; place += 1) {
      const from = Math.round(place * weights.length / count), to = Math.round((place + 1) * weights.length / count);
      columns.push(experts.map((_, one) => {
        let sum = 0;
        for (let at = from; at < to; at += 1) sum += weights[at][one];
        return sum / (to - from);
      }));
    }
    const picture = document.createElementNS(SVG, "svg");
    picture.setAttribute("viewBox", `0 0 ${count || 1} 1`);
    picture.setAttribute("preserveAspectRatio", "none");
    picture.setAttribute("role", "img");
    const order = experts.map((_, place) => place).sort((a, b) => means[b] - means[a]);
    const named = order.map((place) => `${experts[place].name} ${percent(means[place])}`).join(", ");
    picture.setAttribute("aria-label", `Weight of each expert from the first token to the last. Mean: ${named}`);
    let below = new Array(count).fill(0);
    for (const one of order) {
      const above = below.map((base, place) => Math.min(1, base + columns[place][one]));
      if (above.some((top, place) => top - below[place] > 0.002)) {
        const there = above.map((top, place) => `L${place} ${(1 - top).toFixed(3)}H${place + 1}`).join("");
        const back = below.map((base, place) => `L${place + 1} ${(1 - base).toFixed(3)}H${place}`).reverse().join("");
        const area = document.createElementNS(SVG, "path");
        area.setAttribute("fill", experts[one].colour);
        area.setAttribute("d", `M0 ${(1 - below[0]).toFixed(3)}${there}${back}Z`);
        picture.append(area);
      }
      below = above;
    }
    const runs = make("div", "tv-runs");
    runs.setAttribute("aria-hidden", "true");
    const leaders = columns.map((column) => column.indexOf(Math.max(...column)));
    for (let start = 0; start < count;) {
      let end = start;
      while (end < count && leaders[end] === leaders[start]) end += 1;
      if (end - start >= count / 20) {
        const mark = chip(experts[leaders[start]]);
        mark.style.left = `${100 * (start + end) / 2 / count}%`;
        runs.append(mark);
      }
      start = end;
    }
    state.pointer = make("div", "tv-pointer");
    state.strip.replaceChildren(runs, picture, state.pointer);
    state.picture = () => stripPicture(data, picture);
    state.save.hidden = !tokens.length;
  }

  if (root.contains(state.legend)) {
    if (weights) {
      const led = experts.map((_, place) => leads.filter((one) => one === place).length);
      const off = data.off || [], numOn = experts.filter(({name}) => !off.includes(name)).length;
      state.legend.replaceChildren(...experts.map((expert, place) => {
        const one = make("li"), isOff = off.includes(expert.name), canSwitch = onSwitch && expert.mark !== "+";
        const inside = canSwitch ? make("button", "tv-switch") : one;
        inside.append(chip(expert), `${expert.name}: ${isOff ? "off" : `leads at ${led[place]} of ${tokens.length}`}`);
        if (canSwitch) {
          inside.type = "button";
          inside.dataset.expert = expert.name;
          inside.setAttribute("aria-pressed", String(!isOff));
          inside.disabled = !isOff && numOn < 2;
          inside.onclick = () => onSwitch(expert.name);
          one.append(inside);
        }
        return one;
      }));
      const again = [...state.legend.querySelectorAll("button")].find((one) => one.dataset.expert === focused);
      if (again && focused) again.focus();
    } else {
      const sample = (name, words) => {
        const one = make("li"), shown = make("span", `tv-token ${name}`, "line");
        shown.style.setProperty("--tv-tint", "20%");
        one.append(shown, ` ${words}`);
        return one;
      };
      state.legend.replaceChildren(sample("tv-worse", "solid: worse"), sample("tv-better", "double: better"));
    }
  }

  const rows = (at) => {
    if (!weights) {
      const verb = differences[at] < 0 ? "less" : "more";
      return [[null, `${data.sides[0]} gives it ${verb} probability than ${data.sides[1]}`, nats(differences[at]), 0]];
    }
    const order = experts.map((_, place) => place).sort((a, b) => weights[at][b] - weights[at][a]);
    let named = order.filter((one, rank) => rank < NAMED || weights[at][one] >= LEAST_WEIGHT);
    if (order.length - named.length === 1) named = order;
    const others = order.slice(named.length);
    const listed = named.map((one) => [experts[one], experts[one].name, percent(weights[at][one]), weights[at][one]]);
    const rest = others.reduce((sum, one) => sum + weights[at][one], 0);
    return others.length ? [...listed, [null, `${others.length} others`, percent(rest), rest]] : listed;
  };
  const fill = (at) => {
    const table = make("table"), title = make("p");
    title.append(make("code", "", visible(tokens[at])), ` token ${at + 1} of ${tokens.length}`);
    for (const [expert, words, number, share] of rows(at)) {
      const row = table.insertRow(), head = make("th");
      head.scope = "row";
      if (expert) head.append(chip(expert));
      head.append(words);
      row.append(head);
      if (!expert && weights) row.insertCell();
      if (expert) {
        const bar = make("div"), cell = make("td", "tv-bar");
        bar.style.background = expert.colour;
        bar.style.width = `${(100 * share).toFixed(1)}%`;
        cell.append(bar);
        row.append(cell);
      }
      row.append(make("td", "", number));
    }
    state.detail.replaceChildren(title, table);
  };
  const place = (at) => {
    const box = state.nodes[at][state.nodes[at].length - 1].getBoundingClientRect(), own = state.detail;
    own.hidden = false;
    own.style.background = state.page || (state.page = pageColour());
    const size = own.getBoundingClientRect();
    const left = Math.max(4, Math.min(box.left, window.innerWidth - size.width - 8));
    const top = box.bottom + 6 + size.height < window.innerHeight ? box.bottom + 6 : box.top - size.height - 6;
    // A parent with a transform moves what is fixed: corrected by where it came to stand.
    own.style.left = "0px";
    own.style.top = "0px";
    const origin = own.getBoundingClientRect();
    own.style.left = `${left - origin.left}px`;
    own.style.top = `${Math.max(4, top) - origin.top}px`;
  };
  const pageColour = () => {
    for (let one = root; one; one = one.parentElement || (one.getRootNode() && one.getRootNode().host)) {
      const colour = getComputedStyle(one).backgroundColor;
      if (colour && !/^(transparent|rgba\(.*, 0\))$/.test(colour)) return colour;
    }
    return "Canvas";
  };
  const choose = (at, isSpoken) => {
    if (at < 0 || at >= tokens.length) return;
    const old = state.nodes[state.at];
    if (old) old[old.length - 1].classList.remove("tv-here");
    state.at = at;
    state.nodes[at][state.nodes[at].length - 1].classList.add("tv-here");
    if (state.pointer) state.pointer.style.left = `calc(${100 * (at + 0.5) / tokens.length}% - 1px)`;
    fill(at);
    if (state.floats) place(at);
    if (isSpoken) {
      const words = rows(at).slice(0, 3).map(([, name, number]) => `${name} ${number}`).join(", ");
      state.now.textContent = `${visible(tokens[at])}: ${words}`;
      state.nodes[at][state.nodes[at].length - 1].scrollIntoView({block: "nearest"});
    }
  };
  const leave = () => { if (state.floats) state.detail.hidden = true; };

  state.text.onmouseover = (event) => {
    const token = event.target.closest("[data-at]");
    if (token) choose(Number(token.dataset.at));
  };
  state.text.onmouseleave = leave;
  state.text.onblur = leave;
  state.text.onfocus = () => { if (state.text.matches(":focus-visible")) choose(Math.max(0, state.at), true); };
  state.text.onkeydown = (event) => {
    const last = tokens.length - 1;
    const to = {ArrowRight: Math.min(last, state.at + 1), ArrowLeft: Math.max(0, state.at - 1), Home: 0, End: last};
    if (event.key === "Escape") leave();
    if (!(event.key in to) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    choose(to[event.key], true);
  };
  state.strip.onmousemove = (event) => {
    const box = state.strip.getBoundingClientRect();
    choose(Math.floor((event.clientX - box.left) / box.width * tokens.length));
  };
  state.strip.onmouseleave = leave;

  if (state.at >= tokens.length) state.at = -1;
  if (!state.floats && tokens.length) choose(state.at < 0 ? tokens.length - 1 : state.at);
  else if (state.at >= 0 && !state.detail.hidden) choose(state.at);
  if (state.pointer) state.pointer.hidden = state.at < 0;
}
