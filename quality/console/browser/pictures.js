// The pictures of the documentation: every screen, light and dark.
import { mkdir } from "node:fs/promises";
import { act, until, visit } from "./stage.js";

/** The screens of the menu, and the address of each. */
const SCREENS = {
  // First: a request for a row does not wait for ever.
  locks: "#/locks",
  "needs-you": "#/",
  transactions: "#/transactions",
  sagas: "#/sagas",
  events: "#/events",
  "named-locks": "#/named-locks",
  processes: "#/processes",
  cluster: "#/cluster",
  audit: "#/audit",
  "first-start": "#/first-start",
};

/** Sets the stage for them and takes them. */
export async function pictures(page, folder) {
  await mkdir(folder, { recursive: true });
  // Work beside, so that the last minutes have something to show.
  const end = Date.now() + Number(process.env.PICTURES_AFTER_MS ?? 0);
  while (Date.now() < end) await act("orders 20");
  await act("orders 40");
  const xid = await act("dirty 6");
  for (const order of [203, 204]) await act(`saga order-${order}`);
  const saga = await act("saga order-205");
  for (const order of [203, 204]) await act(`park order-${order}`);
  await act("deadlock");
  await act("lock nightly-report/2026-11-27");
  await act("hold 1");
  await act("hold 2");
  await visit(page, `#/transactions/${encodeURIComponent(xid)}`);
  const rows = await until("the dirty write is refused", () =>
    page.locator("a:has-text('Look at its rows')").first().getAttribute("href"));
  let waiter;
  for (const product of [1, 1, 2]) waiter = await act(`wait ${product}`);
  const { locks, ...others } = SCREENS;
  const screens = {
    locks,
    "lock-wait": `#/transactions/${encodeURIComponent(waiter)}`,
    ...others,
    saga: `#/sagas/${encodeURIComponent(saga)}`,
    transaction: `#/transactions/${encodeURIComponent(xid)}`,
    "dirty-write": rows,
  };
  for (const [name, address] of Object.entries(screens)) {
    await visit(page, address);
    await page.mouse.move(0, 0);
    await page.waitForTimeout(1200);
    if (name === "saga") await page.click(".step button:has-text('reserve')");
    if (name === "locks") await page.locator("details summary").first().click();
    for (const theme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
      await page.screenshot({ path: `${folder}/${name}-${theme}.png` });
    }
  }
  // Later scenes hold the same rows.
  await act("release");
}
