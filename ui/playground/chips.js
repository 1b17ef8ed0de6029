const changed = (place, field, to) => {
  const experts = props.value.experts.map((one, at) => at === place ? {...one, [field]: to} : one);
  props.value = {...props.value, experts};
};
const without = (place) => {
  props.value = {...props.value, without: props.value.experts[place].name};
  trigger("select");
};
element.addEventListener("input", (event) => {
  const at = Number(event.target.dataset.place);
  if (event.target.type === "checkbox") changed(at, "on", event.target.checked);
  if (event.target.type === "range") changed(at, "weight", Number(event.target.value));
  trigger("input");
});
element.addEventListener("click", (event) => {
  const label = event.target.closest("label");
  if (label && event.shiftKey) {
    event.preventDefault();
    without(Number(label.querySelector("input").dataset.place));
  }
  if (event.target.closest(".weights")) props.value = {...props.value, open: !props.value.open};
  const button = event.target.closest(".without");
  if (button) without(Number(button.dataset.place));
});
watch("value", () => element.querySelectorAll("input").forEach((one) => {
  if (one.type === "checkbox") one.checked = one.hasAttribute("checked");
}));
