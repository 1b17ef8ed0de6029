// The search's page is opened by the studio's own link to it, which keeps the session.
const isWritten = (field) => field instanceof HTMLElement
  && (field.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(field.tagName));
export default function (component) {
  const {path, is_here} = component.data;
  const field = () => document.querySelector('[data-testid="stMain"] [data-testid="stTextInput"] input');
  const pressed = (event) => {
    const isSlash = event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey;
    const isK = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey;
    if (!isK && !(isSlash && !isWritten(event.composedPath()[0]))) return;
    event.preventDefault();
    if (is_here) field()?.focus();
    else document.querySelector(`a[href$="${path}"]`)?.click();
  };
  document.addEventListener("keydown", pressed);
  const opening = new MutationObserver(() => focus());
  const focus = () => {
    if (!field()) return;
    opening.disconnect();
    if (document.activeElement?.matches('body, a')) field().focus();
  };
  if (is_here) {
    opening.observe(document.body, {childList: true, subtree: true});
    focus();
  }
  return () => {
    document.removeEventListener("keydown", pressed);
    opening.disconnect();
  };
}
