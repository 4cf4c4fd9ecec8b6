// Looks at a page as a critical reader does: what is cut off or sticks out, what is too pale or too small to read, what is
// not explained. Leaves its findings, one per line, in the title of the page that frames it.
function look(view) {
  const { document, innerWidth } = view, found = [];
  const name = (element) => `${element.tagName.toLowerCase()}${element.id ? "#" + element.id : ""} "${element.textContent.trim().slice(0, 40)}"`;
  const isShown = (element) => element.getClientRects().length > 0 && view.getComputedStyle(element).visibility === "visible";
  const shown = [...document.body.querySelectorAll("*")].filter(isShown);
  const scrolls = (element) => element.closest(".scroll, pre") !== null;

  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) found.push(`the page is ${root.scrollWidth} wide in a window of ${innerWidth}`);
  for (const element of shown) {
    const { left, right } = element.getBoundingClientRect();
    if ((right > innerWidth + 1 || left < -1) && !scrolls(element)) found.push(`sticks out, ${Math.round(left)} to ${Math.round(right)}: ${name(element)}`);
    const frame = element.closest("svg");
    if (frame && element.tagName === "text") {
      const around = frame.getBoundingClientRect();
      if (left < around.left - 1 || right > around.right + 1) found.push(`is cut off by its picture: ${name(element)}`);
    }
    if (["TD", "TH", "P", "DD", "H1", "H2", "H3"].includes(element.tagName) && element.scrollWidth > element.clientWidth + 1 && !scrolls(element)) {
      found.push(`does not fit its place: ${name(element)}`);
    }
  }

  const parts = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map((part) => (part /= 255) <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(view.getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  for (const element of shown) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3 && node.data.trim() !== "");
    if (text.length === 0) continue;
    const style = view.getComputedStyle(element), frame = element.closest("svg");
    const ink = parts(frame ? style.fill : style.color), alpha = (ink[3] ?? 1) * Number(style.opacity) * Number(frame ? style.fillOpacity : 1);
    const paper = behind(element);
    const seen = [0, 1, 2].map((part) => ink[part] * alpha + paper[part] * (1 - alpha));
    const [light, dark] = [luminance(seen), luminance(paper)].sort((one, other) => other - one);
    const contrast = (light + 0.05) / (dark + 0.05);
    if (!(contrast >= 4.5)) found.push(`too pale, ${contrast.toFixed(1)}: ${name(element)}`);
    const zoom = frame && frame.viewBox.baseVal ? frame.getBoundingClientRect().width / frame.viewBox.baseVal.width : 1;
    const size = parseFloat(style.fontSize) * (frame ? zoom : 1);
    if (!(size >= 9.5)) found.push(`too small, ${size.toFixed(1)} px: ${name(element)}`);
  }

  const need = (what, is) => { if (!is) found.push(`not explained: ${what}`); };
  const long = (element) => element !== null && element.textContent.trim().length > 40;
  need("the result, above all", long(document.querySelector("#headline")));
  need("the topology", long(document.querySelector("#topology figcaption")));
  const attacks = [...document.querySelectorAll("section.attack")];
  need("six attacks and peace", attacks.length === 7);
  for (const attack of attacks) need(name(attack), long(attack.querySelector("p.story")) && attack.querySelector("details table") !== null);
  for (const figure of document.querySelectorAll("figure")) need(name(figure), figure.querySelector("figcaption") !== null && figure.querySelector("svg") !== null);
  for (const line of document.querySelectorAll(".pair figure svg")) need("a dashed line in a picture", line.closest("figure").querySelector(".key") !== null);
  for (const heading of document.querySelectorAll("h2")) need(`what stands under "${heading.textContent}"`, heading.nextElementSibling !== null);
  const made = [...document.querySelectorAll("#made dt")].map((element) => element.textContent);
  for (const what of ["date", "command", "plait", "processor", "kernel", "seed", "runs", "load", "raw data"]) need(what, made.includes(what));
  return found;
}
