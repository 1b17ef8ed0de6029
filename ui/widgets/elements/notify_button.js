// Permission is requested at the click only, and what the browser answers is shown next to the button.
const explain = () => {
  if (!window.isSecureContext) return "Notifications need HTTPS, or the studio's address on this machine (127.0.0.1).";
  if (!("Notification" in window)) return "This browser has no notifications.";
  if (Notification.permission === "denied") return "The browser blocks notifications of this page: allow them in its settings.";
  return "The browser was not allowed to show notifications.";
};
const isAllowed = async () => window.isSecureContext && "Notification" in window
  && await Notification.requestPermission() === "granted";
const bell = "M6 17V11a6 6 0 0 1 12 0v6l2 2H4ZM10 21.5h4";
export default function (component) {
  const {data, parentElement, setTriggerValue} = component;
  const place = parentElement.querySelector(".root");
  let [button, answer] = place.children;
  if (!button) {
    button = make("button", "", draw("svg", {viewBox: "0 0 24 24", "aria-hidden": "true"}, draw("path", {d: bell})), "");
    button.type = "button";
    answer = make("span", "muted");
    answer.setAttribute("role", "status");
    place.replaceChildren(button, answer);
  }
  const label = data.is_on ? "Do not notify me" : "Notify me when it ends";
  if (button.lastChild.data !== label) button.lastChild.data = label;
  button.onclick = async () => {
    const is_wanted = !data.is_on, is_refused = is_wanted && !await isAllowed();
    answer.textContent = is_refused ? explain() : "";
    if (!is_refused) setTriggerValue("wanted", is_wanted);
  };
}
