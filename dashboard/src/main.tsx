import { type ComponentChildren, render } from "preact";
import { useEffect, useState } from "preact/hooks";

import { isReport } from "./api";
import { Chain } from "./chain";
import { Explainers } from "./explain";
import { clock, whole } from "./format";
import { HeatMap } from "./heatmap";
import { type Live, useLive, useRoute, useRuns } from "./live";
import { Tiles } from "./overview";
import { Home, type Place, placeOf } from "./place";
import { Replicas } from "./replicas";
import { Runs } from "./runs";
import { Step } from "./step";
import { Timeline } from "./timeline";
import { TroubleLine, Verdict } from "./verdict";
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

function RunBody({ live, seq }: { live: Live; seq: number | null }) {
  const { api, run, commits } = live;
  if (!run) return live.trouble ? null : <p class="empty" role="status">Reading the run…</p>;
  if (seq !== null) return <Step api={api} seq={seq} run={run} commits={commits} />;
  return (
    <>
      <Verdict verdict={run.verdict} />
      <Tiles run={run} commits={commits} />
      <Timeline run={run} commits={commits} />
      <HeatMap layers={live.layers} />
      <Replicas run={run} beats={live.beats} />
      <Chain run={run} commits={commits} />
    </>
  );
}

interface FrameProps {
  url: string;
  several: boolean;
  view: "runs" | "run" | "how";
  version: string;
  footer: string;
  trouble: ComponentChildren;
  children: ComponentChildren;
}

function Frame(props: FrameProps) {
  const current = (view: FrameProps["view"]) => (props.view === view ? "page" : undefined);
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
        <p class="address">{props.url}</p>
        <nav aria-label="Views">
          {props.several ? (
            <a href="#/" aria-current={current("runs")}>All runs</a>
          ) : (
            <a href="#/" aria-current={current("run")}>Run</a>
          )}
          <a href="#/how" aria-current={current("how")}>How it works</a>
        </nav>
        <ThemeButton />
      </header>
      {props.trouble}
      <main id="main" tabIndex={-1}>
        {props.children}
      </main>
      <footer>
        <p>
          {props.version && `wisp ${props.version}. `}
          {props.footer}
        </p>
      </footer>
    </>
  );
}

function RunPage({ place, several, how }: { place: Place; several: boolean; how: boolean }) {
  const live = useLive(place.run);
  const newest = live.run?.head_step;
  useEffect(() => {
    document.title = newest === undefined || newest === null ? "wisp" : `step ${newest} · wisp`;
  }, [newest]);
  return (
    <Home.Provider value={`/run/${place.run}`}>
      <Frame
        url={live.run?.url ?? ""}
        several={several}
        view={how ? "how" : "run"}
        version={live.run?.wisp_version ?? ""}
        footer={
          isReport && live.run
            ? `A report, made ${clock(live.run.made_ms)}.`
            : "Reads the bucket, writes nothing."
        }
        trouble={live.trouble && <TroubleLine trouble={live.trouble} />}
      >
        {how ? <Explainers /> : <RunBody live={live} seq={place.seq} />}
      </Frame>
      <p class="visually-hidden" role="status" aria-live="polite" data-figure="announcement">
        {newest !== undefined && newest !== null ? `Newest step ${whole(newest)}` : ""}
      </p>
    </Home.Provider>
  );
}

function App() {
  const place = placeOf(useRoute());
  const { runs, trouble } = useRuns();
  const several = (runs?.length ?? 0) > 1;
  if (place.view !== "runs" || (runs !== null && !several)) {
    return <RunPage key={place.run} place={place} several={several} how={place.view === "how"} />;
  }
  return (
    <Frame
      url=""
      several={several}
      view="runs"
      version=""
      footer="Reads buckets, writes nothing."
      trouble={trouble && <p class="trouble" role="alert">{trouble}</p>}
    >
      {runs && several ? <Runs runs={runs} /> : !trouble && <p class="empty" role="status">Reading the runs…</p>}
    </Frame>
  );
}

const root = document.getElementById("app")!;
root.replaceChildren();
render(<App />, root);
