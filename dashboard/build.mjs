// Makes dist/index.html: one file without a reference to any other, since it is served from the
// binary's memory and mailed around as a report. `node build.mjs FILE` writes elsewhere.
//
// The page says which sources it was made from; tools/dashboard_stamp.py computes the same.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";

import { build } from "esbuild";

const OUTPUT = process.argv[2] ?? "dist/index.html";

const made = await build({
  entryPoints: ["src/main.tsx"],
  bundle: true,
  minify: true,
  write: false,
  outdir: "dist",
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
});
const text = (suffix) => made.outputFiles.find((file) => file.path.endsWith(suffix)).text.trim();

function sourceHash() {
  const files = ["build.mjs", "index.html", "package-lock.json", "package.json", "tsconfig.json"];
  for (const name of readdirSync("src")) files.push(`src/${name}`);
  const hash = createHash("sha256");
  for (const name of files.sort()) {
    const bytes = readFileSync(name);
    hash.update(`${name} ${bytes.length}\n`);
    hash.update(bytes);
  }
  return hash.digest("hex");
}

// Inside a script only this sequence ends it.
const script = text(".js").replaceAll("</script", "<\\/script");
const page = readFileSync("index.html", "utf-8")
  .replace("</head>", () => `  <style>${text(".css")}</style>\n  </head>`)
  .replace(/<script type="module" src=[^>]*><\/script>/, () => `<script type="module">${script}</script>`);
mkdirSync(dirname(OUTPUT), { recursive: true });
writeFileSync(OUTPUT, `${page}<!-- sources ${sourceHash()} -->\n`);
