import { render } from "preact";
import { useEffect, useState } from "preact/hooks";

import { isReport } from "./api";
import { Chain } from "./chain";
import { Explainers } from "./explain";
import { clock, whole } from "./format";
import { HeatMap } from "./heatmap";
import { type Live, useLive, useRoute } from "./live";
import { Tiles, Timeline } from "./overview";
import { Replicas } from "./replicas";
import { Step } from "./step";
import "./style.css";

type Theme = "auto" | "light" | "dark";

// Storage may be closed to a page that was opened from a file.
function remembered(): Theme {
  try {
    const kept = localStorage.getItem("wisp-theme");
    return kept === "light" || kept === "dark" ? kept : "auto";
  } catch {
    return "auto";
  }
}

function ThemeButton() {
  const [theme, setTheme] = useState<Theme>(remembered);
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("wisp-theme", theme);
    } catch {
      // Then it lasts as long as the page.
    }
  }, [theme]);
  const next: Record<Theme, Theme> = { auto: "dark", dark: "light", light: "auto" };
  return (
    <button type="button" onClick={() => setTheme(next[theme])} aria-label={`Colours: ${theme}. Change to ${next[theme]}`}>
      {theme === "auto" ? "◐ auto" : theme === "dark" ? "● dark" : "○ light"}
    </button>
  );
}

function Body({ live, route }: { live: Live; route: string }) {
  if (route === "how") return <Explainers />;
  const { run, commits } = live;
  if (!run) return live.trouble ? null : <p class="empty" role="status">Reading the run…</p>;
  const step = /^step\/(\d+)$/.exec(route);
  if (step) return <Step seq={Number(step[1])} run={run} commits={commits} />;
  return (
    <>
      <Tiles run={run} commits={commits} />
      <Timeline run={run} commits={commits} />
      <HeatMap layers={live.layers} />
      <Replicas run={run} />
      <Chain run={run} commits={commits} />
    </>
  );
}

function App() {
  const live = useLive();
  const route = useRoute();
  const newest = live.run?.head_step;
  useEffect(() => {
    document.title = newest === undefined || newest === null ? "wisp" : `step ${newest} · wisp`;
  }, [newest]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        document.getElementById("main")?.focus();
      }}>
        Skip to the content
      </a>
      <header>
        <h1>wisp</h1>
        <p class="address">{live.run?.url ?? ""}</p>
        <nav aria-label="Views">
          <a href="#/" aria-current={route === "how" ? undefined : "page"}>Run</a>
          <a href="#/how" aria-current={route === "how" ? "page" : undefined}>How it works</a>
        </nav>
        <ThemeButton />
      </header>
      {live.trouble && (
        <p class="trouble" role="alert">
          {live.trouble} {live.run ? "What is shown is the last that was read." : ""}
        </p>
      )}
      <main id="main" tabIndex={-1}>
        <Body live={live} route={route} />
      </main>
      <footer>
        <p>
          {live.run && `wisp ${live.run.wisp_version}. `}
          {isReport && live.run
            ? `A report, made ${clock(live.run.made_ms)}.`
            : "Reads the bucket, writes nothing."}
        </p>
      </footer>
      <p class="visually-hidden" role="status" aria-live="polite" data-figure="announcement">
        {newest !== undefined && newest !== null ? `Newest step ${whole(newest)}` : ""}
      </p>
    </>
  );
}

const root = document.getElementById("app")!;
root.replaceChildren();
render(<App />, root);
