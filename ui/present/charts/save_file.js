// A text becomes a file of the user. It comes with the page: a file of the server may be gone by the time of a click.
const KEPT = 60_000;  // milliseconds that a browser has to begin the download
const SHARPNESS = 2;  // pixels of an image for each of the SVG's, for screens with dense ones
const imageOf = async (svg, type) => {
  const picture = new Image(), canvas = document.createElement("canvas");
  picture.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  await picture.decode();
  canvas.width = SHARPNESS * picture.width;
  canvas.height = SHARPNESS * picture.height;
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, type));
};
const saveFile = async ({text, file_name, type}) => {  // as PNG the browser draws the text, an SVG
  const file = type === "image/png" ? await imageOf(text, type) : new Blob([text], {type});
  const link = document.createElement("a"), address = URL.createObjectURL(file);
  link.href = address;
  link.download = file_name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), KEPT);
};
