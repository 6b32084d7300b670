// Observable Plot inside Preact: drawn anew when the data or the width change.

import * as Plot from "@observablehq/plot";
import { useEffect, useRef } from "preact/hooks";

import { useWidth } from "./live";

interface Props<T> {
  /** What the picture says, for who cannot see it. */
  label: string;
  height: number;
  options: (width: number) => Plot.PlotOptions;
  /** Everything the options depend on. */
  watch: unknown[];
  onPick?: (datum: T) => void;
}

export function Chart<T>({ label, height, options, watch, onPick }: Props<T>) {
  const [box, width] = useWidth<HTMLDivElement>();
  const pick = useRef(onPick);
  pick.current = onPick;
  useEffect(() => {
    if (!box.current || width === 0) return;
    const figure = Plot.plot({
      width,
      height,
      marginRight: 12,
      style: { background: "transparent", fontSize: "12px", overflow: "visible" },
      ...options(width),
    });
    // The picture is one thing to a screen reader; Plot's names of its parts mean nothing there.
    for (const part of figure.querySelectorAll("g[aria-label]")) part.removeAttribute("aria-label");
    figure.setAttribute("role", "img");
    figure.setAttribute("aria-label", label);
    if (onPick) {
      figure.style.cursor = "pointer";
      figure.addEventListener("click", () => {
        const datum = (figure as typeof figure & { value?: T }).value;
        if (datum !== undefined && datum !== null) pick.current?.(datum);
      });
    }
    box.current.replaceChildren(figure);
    return () => figure.remove();
  }, [width, height, label, ...watch]);
  return <div ref={box} class="chart" style={{ minHeight: `${height}px` }} />;
}

