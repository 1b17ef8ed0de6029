// Streamlit reconnects without drawing the page again, but a new server knows nothing of it: a change of a widget in a
// fragment does nothing. So a page that has reconnected has itself drawn, and loads again where its session is another;
// its address holds its choices.
const STATE = "data-test-connection-state";
const app = () => document.querySelector('[data-testid="stApp"]');
const isAway = () => app()?.getAttribute(STATE) !== "CONNECTED";
const advise = (words) => {
  if (!isAway()) return;
  for (const title of document.querySelectorAll('[data-testid="stDialog"] h2')) {
    const body = title.nextElementSibling;
    if (title.textContent.trim() !== "Connection error" || !body || body.querySelector(".server-away")) continue;
    const text = document.createElement("p");
    text.className = "server-away";
    text.setAttribute("role", "alert");
    text.textContent = words;
    body.append(text);
  }
};
export default function (component) {
  const {data, setTriggerValue} = component;
  const page = (window.workbenchPage ??= {session: data.session});
  if (page.session !== data.session) location.reload();
  let wasAway = isAway();
  const dialogs = new MutationObserver(() => advise(data.advice));
  const connection = new MutationObserver(() => {
    if (isAway()) {
      dialogs.observe(document.body, {childList: true, subtree: true});
      advise(data.advice);
    } else {
      dialogs.disconnect();
      if (wasAway) setTriggerValue("reconnected", true);
    }
    wasAway = isAway();
  });
  page.stop?.();
  page.stop = () => { connection.disconnect(); dialogs.disconnect(); };
  connection.observe(app(), {attributeFilter: [STATE]});
  return page.stop;
}
