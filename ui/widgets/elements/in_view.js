// Scrolls what a click has changed into view; where that is in view already, nothing moves.
export default function (component) {
  const {around, click} = component.data;
  const seen = (window.workbenchClicks ??= {});
  const target = document.querySelector(around);
  if (!target || click === (seen[around] ?? 0)) return;
  seen[around] = click;
  target.style.scrollMargin = "5rem 0";  // the header lies over the page, and a job's line grows at its end
  target.scrollIntoView({block: "nearest"});
}
