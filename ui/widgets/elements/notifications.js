// Each end is shown as a notification of the browser, however often the page is drawn; a click on it shows the page.
const shown = (window.workbenchNotified ??= new Set());
export default function (component) {
  for (const {id, title, body} of component.data.ends) {
    if (shown.has(id)) continue;
    shown.add(id);
    const notification = new Notification(title, {body, tag: id});
    notification.onclick = () => {
      window.focus();
      notification.close();
    };
  }
}
