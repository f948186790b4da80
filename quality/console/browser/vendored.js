// Checks that the console's vendored files are those of the packages, but for the names of imports.
//
// `node browser/vendored.js --write` writes them: after `npm update` of one of the packages.
import { readFile, writeFile } from "node:fs/promises";

/** The file of the console, and the file of the package that it is. */
const FILES = {
  "hooks.js": "preact/hooks/dist/hooks.mjs",
  "htm.js": "htm/dist/htm.mjs",
  "preact.js": "preact/dist/preact.mjs",
  "signals-core.js": "@preact/signals-core/dist/signals-core.mjs",
  "signals.js": "@preact/signals/dist/signals.mjs",
};
/** A browser has no packages: imports name the file beside. */
const IMPORTS = {
  "@preact/signals-core": "./signals-core.js",
  "preact/hooks": "./hooks.js",
  preact: "./preact.js",
};

const here = (path) => new URL(path, import.meta.url);
let differing = 0;
for (const [name, source] of Object.entries(FILES)) {
  let text = await readFile(here(`../node_modules/${source}`), "utf8");
  for (const [from, to] of Object.entries(IMPORTS)) text = text.replaceAll(`from"${from}"`, `from"${to}"`);
  // The maps are not served.
  text = text.replace(/\/\/# sourceMappingURL=.*\n?$/, "");
  const file = here(`../../../tc-server/console/vendor/${name}`);
  if (process.argv.includes("--write")) await writeFile(file, text);
  else if ((await readFile(file, "utf8")) !== text) {
    differing += 1;
    console.log(`vendor/${name} is not ${source}`);
  }
}
process.exitCode = differing > 0 ? 1 : 0;
