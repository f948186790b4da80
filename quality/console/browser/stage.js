// What the scenes share: the browser, the deeds of the stage, and looking until something is so.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

export const CONSOLE = process.env.CONSOLE;
export const TOKENS = { viewer: process.env.VIEWER, operator: process.env.OPERATOR };
/** How long something may take to be seen. */
const WITHIN_MS = 15_000;

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Has the stage do a deed, such as `orders 5`, and returns what it tells. */
export async function act(deed) {
  console.log(`@${deed}`);
  const { value } = await answers.next();
  const answer = JSON.parse(value);
  if (answer.failed) throw new Error(`${deed}: ${answer.failed}`);
  return answer.done;
}

/** Fails with words. */
export function ensure(isSo, what) {
  if (!isSo) throw new Error(what);
}

/** Waits until the question is answered with something true, and returns that. */
export async function until(what, question) {
  const end = Date.now() + WITHIN_MS;
  for (;;) {
    const answer = await question();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`it did not come about that ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Opens the browser. */
export const openBrowser = () =>
  // The sandbox of the browser needs rights that a container does not give; it visits us alone.
  chromium.launch({ executablePath: path(process.env.BROWSER), args: ["--no-sandbox"] });

function path(name) {
  return name.includes("/") ? name : `/usr/bin/${name}`;
}

/**
 * Opens a page that is watched: errors, messages of the content security policy and requests to
 * elsewhere are collected in `faults`.
 */
export async function openPage(context) {
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(`error: ${error.stack}`));
  page.on("console", (message) => {
    if (message.type() === "error") faults.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(CONSOLE) && !url.startsWith("blob:")) faults.push(`asks for ${url}`);
  });
  page.setDefaultTimeout(WITHIN_MS);
  return { page, faults };
}

/** Opens a page and signs in with a token. */
export async function signedIn(browser, token, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const opened = await openPage(context);
  await opened.page.goto(CONSOLE);
  await opened.page.fill("input[name=token]", token);
  await opened.page.click("button[type=submit]");
  await opened.page.waitForSelector("nav");
  // Being told to sign in is no fault.
  opened.faults.length = 0;
  return { context, ...opened };
}

/** Goes to a screen by its address. */
export async function visit(page, address) {
  await page.evaluate((to) => {
    location.hash = to;
  }, address);
  await page.waitForSelector("h1");
}
