// Light or dark: as chosen, else as the page or the system has it; and the colours that follow from it.

/** What the surroundings show: a notebook says it on its body, otherwise the system does. */
function surroundings() {
  const { dataset, classList } = document.body;
  if (dataset.jpThemeLight !== undefined) return dataset.jpThemeLight === "false";
  if (classList.contains("vscode-dark") || classList.contains("vscode-light")) return classList.contains("vscode-dark");
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Calls back when the surroundings turn light or dark; returns how to stop. */
export function watchTheme(changed) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", changed);
  const body = new MutationObserver(changed);
  body.observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-light"] });
  return () => {
    system.removeEventListener("change", changed);
    body.disconnect();
  };
}

/** The colours of everything drawn, all of them mixed from the ground, the ink and the hues of the payload. */
export function lookOf(colours, theme, rampOf) {
  const dark = theme === "auto" ? surroundings() : theme === "dark";
  const palette = colours[dark ? "dark" : "light"];
  const ramps = { true: rampOf(palette, true), false: rampOf(palette, false) };
  const mixed = (share) => mix(palette.ground, palette.ink, share);
  return {
    dark,
    ramp: (signed) => ramps[signed],
    ground: palette.ground,
    ink: mixed(0.88),
    soft: mixed(0.74),
    muted: mixed(0.55),
    line: mixed(0.14),
    veil: `${palette.ground}d9`,
    variables: {
      "--ground": palette.ground,
      "--ink": mixed(0.88),
      "--soft": mixed(0.74),
      "--muted": mixed(0.6),
      "--line": mixed(0.14),
      "--tint": mixed(0.045),
      "--accent": ramps.false.css(1),
      "--for": ramps.true.css(1),
      "--against": ramps.true.css(-1),
    },
  };
}

/** A colour `share` of the way from one to the other. */
export function mix(from, to, share) {
  const channel = (start) => {
    const [a, b] = [from, to].map((hex) => parseInt(hex.slice(start, start + 2), 16));
    return Math.round(a + (b - a) * share).toString(16).padStart(2, "0");
  };
  return `#${channel(1)}${channel(3)}${channel(5)}`;
}
