// A text field says what is in it when nobody has typed for a moment, as if Ctrl+Enter had been pressed.
export default function (component) {
  const {around, pause} = component.data;
  let timer = 0;
  const commit = (field) => field.dispatchEvent(
    new KeyboardEvent("keydown", {key: "Enter", code: "Enter", keyCode: 13, ctrlKey: true, bubbles: true}));
  const typed = (event) => {
    const field = event.target;
    if (!(field instanceof HTMLTextAreaElement) || !field.closest(around)) return;
    clearTimeout(timer);
    timer = setTimeout(() => commit(field), pause);
  };
  document.addEventListener("input", typed);
  return () => {
    clearTimeout(timer);
    document.removeEventListener("input", typed);
  };
}
