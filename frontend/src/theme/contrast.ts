/** WCAG contrast and a perceptual distance under simulated colour blindness. Used by tests. */
type Rgb = readonly [number, number, number];

function linear(hex: string): Rgb {
  const channel = (at: number) => {
    const value = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return [channel(1), channel(3), channel(5)];
}

function luminance([r, g, b]: Rgb): number {
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Contrast ratio of two `#rrggbb` colours, 1 to 21 (WCAG 2.2, 1.4.3). */
export function contrast(first: string, second: string): number {
  const [a, b] = [luminance(linear(first)), luminance(linear(second))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

/** Machado, Oliveira, Fernandes 2009: severity 1.0, on linear RGB. */
const visions: Record<string, readonly [Rgb, Rgb, Rgb]> = {
  normal: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protan: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deutan: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritan: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

export const visionNames = Object.keys(visions);

function seenAs(rgb: Rgb, vision: string): Rgb {
  const matrix = visions[vision];
  if (!matrix) throw new Error(`vision ${vision}: unknown; use one of ${visionNames.join(", ")}`);
  const row = (weights: Rgb) =>
    Math.min(1, Math.max(0, weights[0] * rgb[0] + weights[1] * rgb[1] + weights[2] * rgb[2]));
  return [row(matrix[0]), row(matrix[1]), row(matrix[2])];
}

/** Ottosson's Oklab of a linear RGB colour. */
function oklab([r, g, b]: Rgb): Rgb {
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

/** Distance in Oklab x 100 (about 2 is just noticeable) as someone with `vision` sees it. */
export function distance(first: string, second: string, vision: string): number {
  const a = oklab(seenAs(linear(first), vision));
  const b = oklab(seenAs(linear(second), vision));
  return 100 * Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}
