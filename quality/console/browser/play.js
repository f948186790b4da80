// Plays the scenes one after the other, and takes the pictures if it is told where they go.
import * as scenes from "./scenes.js";
import { pictures } from "./pictures.js";
import { TOKENS, act, openBrowser, signedIn } from "./stage.js";

const ORDER = [
  "signIn", "transactions", "file", "label", "hostile", "waits", "deadlock", "saga", "sagaCancelled", "sagaStuck", "parkedEvents", "dirtyWrite", "dirtyForced", "bulk",
  "viewer", "killed", "widths",
];
/** After the pictures, which need no list of ten thousand. */
const LAST = ["long", "paint"];

const browser = await openBrowser();
const { page, context, faults } = await signedIn(browser, TOKENS.operator, { acceptDownloads: true });
let [passed, failed] = [0, 0];
const play = async (name, scene) => {
  const started = Date.now();
  try {
    await scene({ browser, page, context, faults });
    passed += 1;
    console.log(`${name} ... ok (${((Date.now() - started) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed += 1;
    console.log(`${name} ... FAILED (${((Date.now() - started) / 1000).toFixed(1)} s): ${error.message}`);
    if (faults.length > 0) console.log(faults.join("\n"));
    console.log((await page.locator("body").innerText()).slice(0, 2000));
  }
};
const wanted = (name) => name.includes(process.env.SCENE ?? "");
for (const name of ORDER.filter(wanted)) await play(name, scenes[name]);
if (process.env.PICTURES) await play("pictures", () => pictures(page, process.env.PICTURES));
for (const name of LAST.filter(wanted)) await play(name, scenes[name]);
await browser.close();
await act("close");
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);
