/* global drawTokens */
() => {
  if (window.workbench) return;
  const TEXT = ":is(.generated, .tv-text)";  // of an answer: plain, or by token
  const one = (selector) => document.querySelector(selector);
  document.documentElement.lang = "en";
  document.documentElement.classList.toggle("framed", window.top !== window);
  Object.assign(document.body.dataset, { panes: "2", pane: "A", format: "Completion" });

  const phone = matchMedia("(max-width: 768px)");
  const fit = () => document.body.classList.toggle("phone", phone.matches);
  phone.addEventListener("change", fit);
  fit();

  const announcer = document.createElement("div");
  announcer.id = "announcer";
  announcer.setAttribute("role", "status");
  document.body.append(announcer);
  const say = (words) => { announcer.textContent = words; };
  const note = document.createElement("div");
  Object.assign(note, { id: "note", hidden: true });
  note.setAttribute("aria-hidden", "true");  // the announcer says the same
  document.body.append(note);
  let hiding;
  const notify = (words) => {
    say(words);
    Object.assign(note, { textContent: words, hidden: false });
    clearTimeout(hiding);
    hiding = setTimeout(() => { note.hidden = true; }, 4000);
  };
  const answer = (name) => {
    const text = one(`#answer-${name} ${TEXT}`)?.cloneNode(true);
    text?.querySelectorAll("sup, .turn b").forEach((mark) => mark.remove());
    return text?.textContent ?? "";
  };
  const copied = (text) => {  // where a page has no clipboard of its own: over HTTP from another machine
    const field = document.createElement("textarea"), focused = document.activeElement;
    field.value = text;
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand("copy");
    field.remove();
    focused?.focus();
    return isCopied;
  };
  const put = async (text, words) => {
    let isCopied = true;
    try { await navigator.clipboard.writeText(text); } catch { isCopied = copied(text); }
    notify(isCopied ? words : "The browser does not allow copying.");
  };
  // The address: results (a stored comparison, a grid) have an entry each in the browser's history, settings share one.
  const ours = () => {
    const query = new URLSearchParams(location.search);
    query.delete("__theme");
    return query;
  };
  const isResult = (query) => query.has("r") || query.has("x");
  const copyLink = (query) => put(`${location.origin}${location.pathname}?${new URLSearchParams(query)}`, "Link copied.");
  const sendAddress = () => { if (window.top !== window) parent.postMessage({ playground: String(ours()) }, "*"); };
  const setAddress = (address) => {
    const before = ours(), query = new URLSearchParams(address);
    if (isLeaving || String(query) === String(before)) return;
    const theme = new URLSearchParams(location.search).get("__theme");
    const change = isResult(before) || isResult(query) ? "pushState" : "replaceState";
    if (theme) query.set("__theme", theme);
    history[change](null, "", location.pathname + (query.size ? `?${query}` : ""));
    sendAddress();
  };
  let isLeaving = false;  // after “back” or “forward”: an entry for a late answer would drop those that come after
  window.addEventListener("popstate", () => { isLeaving = true; location.reload(); });
  sendAddress();
  let sent = 0;  // changes of settings, in the order of a user
  window.workbench = {
    inTurn: (values) => [...values.slice(0, -1), ++sent],
    copy: (name) => put(answer(name), `Answer ${name.toUpperCase()} copied.`),
    picture: (name, ending) => {
      const button = one(`#answer-${name} .tv-save:not([hidden]) [data-ending=${ending}]`);
      if (button) button.click(); else notify("Generate an answer first. A blind one has no strip.");
    },
    newChat: () => {  // the address of a stored comparison becomes that of the settings
      const own = one("#settings [data-settings]")?.dataset.settings;
      window.workbench.hide(false);
      if (isResult(ours())) setAddress(own ?? "");
      say("New chat.");
      one("#prompt textarea")?.focus();
    },
    put,
    say,
    link: () => {  // of the results that the address is of, else of the settings
      const own = one("#settings [data-settings]")?.dataset.settings;
      return isResult(ours()) ? copyLink(ours()) : own ? copyLink(own)
        : notify(own === "" ? "The prompt is too long for a link." : "There is no link while a setting is empty.");
    },
    gridLink: () => (ours().has("x") ? copyLink(ours()) : notify(one("#cells [data-address]") ? one("#cells p").textContent : "There is no grid yet: fill it first.")),
    openGrid: () => {
      if ((ours().has("x") || ours().has("y")) && !one("#grid").classList.contains("open")) window.workbench.drawer("grid");
    },
    hide: (blind) => { document.body.classList.toggle("blind", blind); },
    voted: () => {
      document.body.classList.remove("blind");
      const ratings = one("#ratings span");
      say(`Vote ${ratings?.dataset.pressed ? "counted" : "withdrawn"}. ${ratings?.textContent ?? ""}`);
    },
    drawer: (name) => {
      const drawer = one(`#${name}`);
      drawer.querySelector(".toggle-button").click();
      setTimeout(() => { if (drawer.classList.contains("open")) (drawer.querySelector("textarea") ?? drawer.querySelector("input, a"))?.focus(); }, 350);
    },
  };

  const VOTES = { 1: "a", 2: "b", 0: "tie", 9: "both-bad" };
  document.addEventListener("keydown", (event) => {
    const writes = event.target.closest("input:not([type=checkbox]):not([type=radio]):not([type=range]), textarea, [contenteditable]");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      event.stopPropagation();
      one("#generate")?.click();
    } else if (event.key === "Escape" && event.target.getAttribute("aria-expanded") !== "true") {  // else a list closes
      const open = [...document.querySelectorAll(".sidebar.open, #grid.open")].at(-1);
      if (open) window.workbench.drawer(open.id);
      else one("#stop")?.click();
    } else if (!writes && !event.ctrlKey && !event.metaKey && !event.altKey && event.key in VOTES) {
      one(`#vote-${VOTES[event.key]}`)?.click();
    }
  }, true);

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-studio]");
    if (link) link.href = one("#brand a").href + link.dataset.studio;
  }, true);

  // Links stay in the theme that the page was opened with.
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="?r="]');
    const theme = new URLSearchParams(location.search).get("__theme");
    if (link && theme) link.setAttribute("href", `${link.getAttribute("href").split("&")[0]}&__theme=${theme}`);
  }, true);

  // The end of an answer is announced; a text that grows stays at its end unless somebody has scrolled up.
  const announced = new WeakMap();
  const watch = (pane, name) => {
    let isBelow = true, top = 0, drawn;
    const view = document.createElement("div");
    view.className = "token-view";
    pane.addEventListener("scroll", (event) => {
      const text = event.target;
      ({ scrollTop: top } = text);
      isBelow = text.scrollTop + text.clientHeight > text.scrollHeight - 40;
    }, true);
    const draw = (place) => {  // a new frame brings an empty place: the view moves there, and adds what is new
      if (drawn === place.dataset.tokens && place.contains(view)) return;
      const before = top;  // outside of the page it is 0
      drawn = place.dataset.tokens;
      place.append(view);
      drawTokens(view, JSON.parse(drawn));
      view.querySelector(".tv-text").scrollTop = before;
    };
    new MutationObserver(() => {
      const place = pane.querySelector("[data-tokens]");
      if (place) draw(place);
      const text = pane.querySelector(TEXT), state = pane.querySelector(".state[data-done], .problem");
      const words = state?.textContent ?? "", isNew = words !== announced.get(pane);
      const isStored = state?.matches(".stored") && !pane.querySelector(".turn");  // begins at its start; a chat at its end
      if (text && isBelow && (!state || isNew) && !isStored) text.scrollTop = text.scrollHeight;
      if (isNew) {
        announced.set(pane, words);
        if (words) say(`Answer ${name}. ${words}`);
      }
    }).observe(pane, { childList: true, subtree: true, characterData: true, attributes: true });
  };
  const press = () => {  // the button of the vote that stands; a second click withdraws it
    const pressed = one("#ratings [data-pressed]")?.dataset.pressed;
    document.querySelectorAll("#vote > button").forEach((button) => button.setAttribute("aria-pressed", button.id === `vote-${pressed}`));
  };
  const hideOld = () => {  // what comes next after another prompt
    const { value } = one("#prompt textarea");
    document.querySelectorAll(".next").forEach((next) => { next.hidden = !isOf(next.dataset, value); });
  };
  const isOf = ({ length, end }, prompt) => prompt.length === Number(length) && prompt.endsWith(end);
  const leadHome = () => {  // a login is valid for one name of this machine: the one that the page was opened with
    const loopback = ["localhost", "127.0.0.1"];
    for (const link of document.querySelectorAll("#brand a")) {
      const address = new URL(link.href);
      if ([address.hostname, location.hostname].every((host) => loopback.includes(host))) address.hostname = location.hostname;
      link.href = address;
    }
  };
  const begin = () => {
    leadHome();
    const names = [..."ABCD"], panes = names.map((name) => one(`#answer-${name.toLowerCase()}`));
    if (panes.includes(null)) { setTimeout(begin, 50); return; }
    panes.forEach((pane, number) => watch(pane, names[number]));
    let settings, early, latest = 0;  // those of the address; the first answer to a change; the turn of the newest one
    for (const place of ["#permalink", "#settings", "#cells"].map(one)) {
      new MutationObserver(() => {
        const data = place.querySelector("[data-address], [data-settings]")?.dataset ?? {}, own = data.settings;
        let { address } = data;
        if (Number(data.turn) < latest) return;  // a later answer has overtaken this one
        latest = Number(data.turn ?? latest);
        if (own !== undefined && settings === undefined) {  // what the page opened with is not known yet
          if (address !== undefined && early === undefined) { early = address; return; }
          settings = address === undefined ? own : early;
          address ??= early;
        }
        if (address === undefined) settings = own ?? settings;  // what the page itself set, which no user changed
        const isChanged = own === undefined || address !== settings;  // a field that is only left changes nothing
        if (address === undefined || !isChanged) return;
        if (own !== undefined) settings = address;
        setAddress(address);
      }).observe(place, { childList: true, subtree: true, characterData: true, attributes: true });
    }
    new MutationObserver(press).observe(one("#ratings"), { childList: true, subtree: true, attributes: true });
    press();
    document.querySelectorAll(".following").forEach((place) => new MutationObserver(hideOld).observe(place, { childList: true, subtree: true }));
    one("#prompt").addEventListener("input", hideOld);
    one("#prompt textarea")?.focus();
  };
  begin();
}
