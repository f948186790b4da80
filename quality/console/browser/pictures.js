// The pictures of the documentation: every screen, light and dark.
import { mkdir } from "node:fs/promises";
import { act, until, visit } from "./stage.js";

/** The screens of the menu, and the address of each. */
const SCREENS = {
  // First: a request for a row does not wait for ever.
  locks: "#/locks",
  "needs-you": "#/",
  transactions: "#/transactions",
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
  await act("lock nightly-report/2026-11-27");
  await act("hold 1");
  await act("hold 2");
  await visit(page, `#/transactions/${encodeURIComponent(xid)}`);
  const rows = await until("the dirty write is refused", () =>
    page.locator("a:has-text('Look at its rows')").first().getAttribute("href"));
  const screens = {
    ...SCREENS,
    transaction: `#/transactions/${encodeURIComponent(xid)}`,
    "dirty-write": rows,
  };
  for (const theme of ["light", "dark"]) {
    for (const product of [1, 1, 2]) await act(`wait ${product}`);
    await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
    for (const [name, address] of Object.entries(screens)) {
      await visit(page, address);
      await page.waitForTimeout(1200);
      await page.screenshot({ path: `${folder}/${name}-${theme}.png` });
    }
  }
}
