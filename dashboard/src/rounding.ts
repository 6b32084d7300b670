// How often a small step survives rounding to bf16: the arithmetic behind the first picture.

/** Abramowitz and Stegun 7.1.26, good to 1.5e-7. */
function erf(x: number): number {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const tail =
    t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(x) * (1 - tail * Math.exp(-x * x));
}

const RATIO_SPREAD = 0.22;

export interface Size {
  binade: number;
  /** Share of all weights that are of this size. */
  weights: number;
  /** Share of those that change in a step. */
  chance: number;
}

/**
 * Weights from a normal distribution of width `spread`, moved by one step of Adam. Numbers between
 * 2^e and 2^(e+1) are 2^(e-7) apart; the fp32 master lies anywhere between two of them, so that a
 * step is seen with the chance step / distance. Adam moves a weight by rate * m / sqrt(v); of noisy
 * gradients that ratio is close to normal, and its spread as in cli/simulated_training.hpp.
 */
export function sizes(spread: number, rate: number): Size[] {
  const step = rate * RATIO_SPREAD * Math.sqrt(2 / Math.PI);
  const found: Size[] = [];
  for (let binade = -18; binade <= 0; binade += 1) {
    const below = (edge: number) => erf(edge / (spread * Math.SQRT2));
    const weights = below(2 ** (binade + 1)) - below(2 ** binade);
    if (weights < 1e-6) continue;
    found.push({ binade, weights, chance: Math.min(1, step / 2 ** (binade - 7)) });
  }
  return found;
}

export const changedShare = (all: Size[]): number =>
  all.reduce((sum, size) => sum + size.weights * size.chance, 0);
