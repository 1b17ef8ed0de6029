// The frame says its address whenever it changes (ui/playground/page.js). An entry in the browser's history is the
// frame's own, which *back* takes back; this page's address follows it without one.
export default function (component) {
  const follow = (event) => {
    const frame = document.querySelector(`${component.data.around} iframe`);
    if (!frame || event.source !== frame.contentWindow || typeof event.data?.playground !== "string") return;
    const query = event.data.playground;
    history.replaceState(history.state, "", location.pathname + (query ? `?${query}` : ""));
  };
  window.addEventListener("message", follow);
  return () => window.removeEventListener("message", follow);
}
