// The field for a picture: dropped, pasted or chosen, and made no larger than models read.

const SIDE = 512; // pixels: more than any patch model here reads
const LONGEST = 180_000; // characters of a PNG beyond which it is sent as a JPEG, so that a request stays small,
const QUALITIES = [0.9, 0.7, 0.5, 0.3]; // the first of these that is no longer than
const ROOM = 240_000; // what a request has room for

const by = (id) => document.getElementById(id);

export function pictureField(complain) {
  let current = null; // { image, name }

  function show(picture) {
    current = picture;
    by("preview").hidden = !picture;
    if (picture) by("preview").src = picture.image;
    else by("preview").removeAttribute("src");
    by("preview").alt = picture ? `The picture ${picture.name}` : "";
    by("drop-hint").textContent = picture ? picture.name : "Drop an image here, paste one, or";
    complain(null);
  }

  async function take(file) {
    try {
      show({ image: await drawn(file), name: file.name || "picture" });
    } catch {
      show(null); // a picture of before would be explained in its place
      complain(`“${file.name || "what was dropped"}” is no image that this browser can read: expected a PNG, JPEG, WebP or GIF file`);
    }
  }

  /** The file as a data URL, scaled down where it is large. */
  async function drawn(file) {
    const picture = await createImageBitmap(file);
    const scale = Math.min(1, SIDE / Math.max(picture.width, picture.height));
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [picture.width, picture.height].map((size) => Math.max(1, Math.round(size * scale)));
    const pen = canvas.getContext("2d");
    pen.imageSmoothingQuality = "high";
    pen.fillStyle = "white"; // what is transparent
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
    const png = canvas.toDataURL("image/png");
    if (png.length <= LONGEST) return png;
    const made = QUALITIES.map((quality) => canvas.toDataURL("image/jpeg", quality));
    return made.find((each) => each.length <= ROOM) ?? made.at(-1);
  }

  const files = (transfer) => [...(transfer?.files ?? [])];
  by("choose").addEventListener("click", () => {
    by("image").value = ""; // the same file again may be another picture by now
    by("image").click();
  });
  by("image").addEventListener("change", () => by("image").files.length && take(by("image").files[0]));
  for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
    by("drop").addEventListener(kind, (event) => {
      event.preventDefault();
      by("drop").classList.toggle("over", kind === "dragenter" || kind === "dragover");
      if (kind !== "drop") return;
      if (files(event.dataTransfer).length) take(files(event.dataTransfer)[0]);
      else complain("that is no file: drop an image file, or choose one");
    });
  }
  document.addEventListener("paste", (event) => {
    const pasted = files(event.clipboardData).find((file) => file.type.startsWith("image/"));
    if (pasted && !by("image-field").hidden) take(pasted);
  });

  return { show, value: () => current };
}
