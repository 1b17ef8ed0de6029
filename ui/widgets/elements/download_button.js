export default function (component) {
  const {data, parentElement} = component;
  const place = parentElement.querySelector(".root");
  let button = place.querySelector("button");
  if (!button) {
    const arrow = draw("path", {d: "M12 4v11m-5-5 5 5 5-5M5 20h14"});
    button = make("button", "", draw("svg", {viewBox: "0 0 24 24", "aria-hidden": "true"}, arrow), data.label);
    button.type = "button";
    place.replaceChildren(button);
  }
  button.onclick = () => saveFile(data);
}
