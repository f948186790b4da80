// The scenes: each is played on a page of an operator, who has signed in.
import { CONSOLE, TOKENS, act, ensure, openPage, signedIn, until, visit } from "./stage.js";

const text = (page) => page.locator("main").innerText();
const rows = (page) => page.locator(".table .row");
/** How many rows a list has, in sight or not. */
const rowCount = async (page) => Number(await page.locator(".table").getAttribute("aria-rowcount"));
const isRolledBack = (page) => async () => (await page.locator(".summary .badge.rolled_back").count()) === 1;

/** Signing in gives a cookie that no script reads; the page keeps no token. */
export async function signIn({ browser }) {
  const context = await browser.newContext();
  const { page } = await openPage(context);
  await page.goto(CONSOLE);
  await page.fill("input[name=token]", "hft_wrong");
  await page.click("button[type=submit]");
  await page.waitForSelector(".problem");
  ensure((await text(page)).includes("HF-ADM-UNAUTHENTICATED"), "a wrong token is refused by its code");
  await page.fill("input[name=token]", TOKENS.operator);
  await page.click("button[type=submit]");
  await page.waitForSelector("nav .caller");
  ensure((await page.locator("nav .caller").innerText()).includes("alice"), "the caller is named");
  const cookies = await context.cookies(`${CONSOLE}/api/v1/me`);
  const [cookie] = cookies.filter(({ name }) => name.startsWith("handfast_console"));
  ensure(cookie?.httpOnly && cookie.sameSite === "Strict", `HttpOnly, Strict: ${JSON.stringify(cookie)}`);
  ensure(!cookie.value.includes("hft_"), "the cookie is not the token");
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
  ensure(!kept.includes("hft_") && !kept.includes("handfast_console"), `kept by the page: ${kept}`);
  await page.reload();
  await page.waitForSelector("nav .caller");
  await page.click("nav .caller button");
  await page.waitForSelector("input[name=token]");
  ensure((await context.cookies(`${CONSOLE}/api/v1/me`)).length === 0, "signing out ends the cookie");
  await context.close();
}

/** Transactions appear without a reload, are found, and are opened by keys. */
export async function transactions({ page }) {
  await act("orders 12");
  await visit(page, "#/transactions");
  await page.waitForSelector(".table");
  await until("twelve orders are listed", async () => (await rowCount(page)) >= 12);
  const before = await rowCount(page);
  await act("orders 3");
  await until("three more appear", async () => (await rowCount(page)) === before + 3);
  await page.keyboard.press("/");
  ensure(await page.evaluate(() => document.activeElement?.hasAttribute("data-search")), "`/` searches");
  await page.keyboard.type("place-order");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  await page.selectOption("select[name=status]", "rolled_back");
  await until("only those rolled back are listed", async () => {
    const seen = await page.locator(".table .row .badge").allInnerTexts();
    return seen.length > 0 && seen.every((status) => status.startsWith("rolled back"));
  });
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".waterfall");
  ensure((await page.locator(".waterfall .lane").count()) === 4, "an axis, the transaction and two branches");
  ensure((await text(page)).includes("rolled back"), "its end is told");
  await page.click("button:has-text('JSON')");
  ensure(JSON.parse(await page.locator("pre.json").innerText()).branches.length === 2, "JSON is shown");
}

/** Exported, a transaction is opened again from its file. */
export async function file({ page }) {
  const [saved] = await Promise.all([page.waitForEvent("download"), page.click("button:has-text('Export')")]);
  const path = await saved.path();
  await visit(page, "#/transactions");
  await page.setInputFiles("input[type=file]", path);
  await page.waitForSelector(".waterfall");
  ensure((await text(page)).includes("From a file"), "it says that it is from a file");
}

/** A label finds the one transaction that has it, and its transaction shows it. */
export async function label({ page }) {
  await act("orders 3");
  await visit(page, "#/transactions");
  await page.waitForSelector(".table .row .label");
  const wanted = await page.locator(".table .row .label").nth(1).innerText();
  ensure(/^order=\d+$/.test(wanted), `an order is a label: ${wanted}`);
  await page.fill("input[name=label]", wanted);
  await page.keyboard.press("Enter");
  await until("one is listed", async () => (await rowCount(page)) === 1);
  ensure((await rows(page).locator(".label").allInnerTexts()).join() === wanted, "it is that one");
  await page.click(".table .row a");
  await page.waitForSelector(".waterfall");
  ensure((await page.locator(".summary .label").innerText()) === wanted, "its own page shows the label");
  await visit(page, "#/transactions?label=order%3Dnone");
  await until("no other is found", async () => (await text(page)).includes("No transaction is as asked for."));
  await visit(page, "#/transactions?label=order");
  await page.waitForSelector(".problem");
}

/** A name of a client is text, wherever it is shown. */
export async function hostile({ page }) {
  const { xid, name } = await act("hostile");
  for (const address of ["#/transactions", `#/transactions/${encodeURIComponent(xid)}`, "#/processes"]) {
    await visit(page, address);
    await until(`the name stands on ${address}`, async () => (await text(page)).includes(name));
    ensure((await page.locator("img").count()) === 0, `no image on ${address}`);
  }
  ensure((await page.title()) !== "markup", "it is not run");
}

/** A wait for a row is seen, drawn, and gone once the row is free. */
export async function waits({ page }) {
  const holder = await act("hold 1");
  const waiter = await act("wait 1");
  await visit(page, "#/locks");
  await until("one request waits", async () => (await page.locator(".row .waiting").count()) === 1);
  await page.waitForSelector(".graph .edge");
  const nodes = await page.locator(".graph .node").evaluateAll((all) => all.map((it) => it.title));
  ensure(nodes.includes(holder) && nodes.includes(waiter), `drawn: ${nodes}, not ${holder}, ${waiter}`);
  ensure(/place-order order=\d+/.test(await page.locator(".graph").innerText()), "the graph names the order");
  await page.locator(".row:has(.waiting)").first().click();
  const beside = page.locator(".panel:has(h3)");
  ensure((await beside.innerText()).includes(waiter), "the queue names the waiter");
  await visit(page, `#/transactions/${encodeURIComponent(waiter)}`);
  await page.waitForSelector(".panel:has-text('Waits for rows now')");
  const now = await page.locator(".panel:has-text('Waits for rows now')").innerText();
  ensure(now.includes("stock 1") && now.includes(holder), `it waits for: ${now}`);
  ensure((await text(page)).includes("Still to come"), "its deadline is still to come");
  await act("release");
  await until("it is committed", async () => (await page.locator(".summary .badge.committed").count()) === 1);
  ensure((await page.locator(".waterfall .bar.wait").count()) === 1, "the wait is in its course");
  ensure((await page.locator(".timeline .lock_wait").count()) === 1, "and in what happened");
  await visit(page, "#/locks");
  await until("nothing waits", async () => (await text(page)).includes("No transaction waits for another."));
}

/** Two transactions in opposite order: one is refused, the cycle is drawn, and the rest goes on. */
export async function deadlock({ page }) {
  const refused = await act("deadlock");
  ensure(refused.includes("deadlock"), `refused as a deadlock: ${refused}`);
  const ends = [];
  for (const name of ["move-left", "move-right"]) {
    await visit(page, `#/transactions?name=${name}`);
    await until(`${name} is listed`, async () => (await rows(page).count()) === 1);
    ends.push(await until(`${name} has ended`, async () => {
      const status = await page.locator(".table .row .badge").innerText();
      return ["committed", "rolled back"].includes(status) && status;
    }));
  }
  ensure(ends.sort().join() === "committed,rolled back", `their ends: ${ends}`);
  await visit(page, "#/locks");
  const panel = page.locator(".panel:has-text('Deadlocks that were refused')");
  await panel.locator("summary").first().click();
  const cycle = panel.locator("details[open] .graph");
  await cycle.waitFor();
  ensure((await cycle.locator(".edge").count()) === 2, "each waits for the other");
  ensure((await cycle.locator(".edge.back").count()) === 1, "the last waits for the first");
  const drawn = await cycle.innerText();
  for (const part of ["move-left", "move-right", "stock 4", "stock 5"]) {
    ensure(drawn.includes(part), `the cycle names ${part}: ${drawn}`);
  }
  ensure((await cycle.locator(".node.marked").count()) === 1, "the one that was refused is marked");
}

/** A saga waits for a person, who signals by a click, and it completes. */
export async function saga({ page }) {
  const xid = await act("saga order-17");
  await visit(page, "#/sagas");
  await page.fill("input[name=key]", "order-17");
  await page.keyboard.press("Enter");
  await until("it waits for its approval", async () =>
    (await rowCount(page)) === 1 && (await rows(page).innerText()).includes("waits for approval"));
  await page.click(".table .row a");
  await page.waitForSelector(".saga");
  ensure((await text(page)).includes(xid), "it is that saga");
  ensure((await page.locator(".saga .group").count()) === 4, "four groups, one after the other");
  ensure((await page.locator(".step.done").innerText()).startsWith("reserve"), "one step is done");
  await page.click(".step button:has-text('reserve')");
  ensure(/"units": 40/.test(await text(page)), "its input is shown");
  await page.click("button:has-text('Signal approval')");
  await page.fill("dialog textarea", "Ada");
  await page.click("dialog button[type=submit]");
  await page.waitForSelector("dialog .problem");
  await page.fill("dialog textarea", '"Ada"');
  await page.fill("dialog input[name=reason]", "she has called");
  await page.click("dialog button[type=submit]");
  await until("it completes", async () => (await page.locator(".summary .badge.completed").count()) === 1);
  ensure((await page.locator(".step.done").count()) === 5, "every step is done");
  const done = await act("done order-17");
  ensure(done === "invoice, pay Ada, reserve, ship", `what the steps did: ${done}`);
  await visit(page, "#/audit");
  await until("it is in the audit log", async () => (await text(page)).includes("she has called"));
}

/** Behind its pivot a step refuses: a person puts it right by hand, and the saga completes. */
export async function sagaStuck({ page }) {
  const xid = await act("refused-saga order-20");
  await visit(page, `#/sagas/${encodeURIComponent(xid)}`);
  await page.click("button:has-text('Signal approval')");
  await page.fill("dialog textarea", '"Ada"');
  await page.click("dialog button[type=submit]");
  await page.waitForSelector("dialog", { state: "detached" });
  await visit(page, "#/");
  await page.click(`a[title="${xid}"]`);
  await page.click("a:has-text('Its steps')");
  await page.click(".step.running_stuck button");
  ensure((await text(page)).includes("no lorry"), "it says why the step is refused");
  await page.click("button:has-text('Put right by hand')");
  await page.fill("dialog input[name=reason]", "sent by post");
  await page.click("dialog button[type=submit]");
  await until("it completes", async () => (await page.locator(".summary .badge.completed").count()) === 1);
  ensure((await act("done order-20")) === "invoice, pay Ada, reserve", "what is done by hand is not done again");
}

/** Cancelled, a saga is compensated. */
export async function sagaCancelled({ page }) {
  const xid = await act("saga order-18");
  await visit(page, `#/sagas/${encodeURIComponent(xid)}`);
  await page.waitForSelector(".step.done");
  await page.click("button:has-text('Cancel')");
  await page.fill("dialog input[name=reason]", "the customer left");
  await page.click("dialog button[type=submit]");
  await until("it is compensated", async () => (await page.locator(".summary .badge.compensated").count()) === 1);
  ensure((await text(page)).includes("the customer left"), "its cause is shown");
  ensure((await act("done order-18")) === "", "what was done is undone");
  ensure((await page.locator(".title button:has-text('Signal')").count()) === 0, "no signal is offered any more");
}

/** A dirty write is made by another program, and ended by clicks. */
export async function dirtyWrite({ page }) {
  await visit(page, "#/");
  const xid = await act("dirty 3");
  await until("it appears where it is needed", async () => (await text(page)).includes(xid));
  await page.click(`a[title="${xid}"]`);
  await page.click("a:has-text('Look at its rows')");
  await page.waitForSelector(".images");
  const cells = await page.locator(".images tbody tr:has-text('units')").innerText();
  ensure(/10\s+7\s+3/.test(cells), `before, after and current: ${cells}`);
  await page.click("label:has(input[value=restore_clean])");
  await page.fill("input[name=reason]", "four were sold at the counter");
  await page.click(".answer button[type=submit]");
  await page.waitForSelector(".line");
  const audit = await page.locator(".panel:has(.line)").innerText();
  ensure(audit.includes("alice") && audit.includes("restore_clean: four were sold"), `audit: ${audit}`);
  await until("it is rolled back", isRolledBack(page));
  ensure((await act("units 3")) === 3, "the other program's write stays");
}

/** A parked event is seen with its reason, and published after all; another one is given up. */
export async function parkedEvents({ page }) {
  await act("park <b>31</b>");
  await visit(page, "#/");
  await page.waitForSelector(".parked tr:has-text('<b>31</b>')");
  ensure((await text(page)).includes("bound to shipments for <b>31</b>"), "the broker's reason stays text");
  await page.click("nav a:has-text('Events')");
  await page.waitForSelector(".parked tr:has-text('<b>31</b>')");
  await until("the menu counts it", async () =>
    (await page.locator("nav a:has-text('Events') .alarm").count()) === 1);
  const relay = await page.locator(".panel:has(h2:has-text('stock'))").innerText();
  ensure(/parked\s+1\b/.test(relay) && /lanes\s+64 of 64/.test(relay), `the relay: ${relay}`);
  await act("accept <b>31</b>");
  await page.click(".parked tr:has-text('<b>31</b>') button:has-text('requeue')");
  await page.fill("dialog input[name=reason]", "the queue is there");
  await page.click("dialog button[type=submit]");
  await page.waitForSelector(".parked tr:has-text('<b>31</b>')", { state: "detached" });
  await until("it is published, and the next one behind it", async () =>
    (await act("published <b>31</b>")) === "packed, sent");
  await act("park order-32");
  await page.click(".parked tr:has-text('order-32') button:has-text('skip')");
  ensure((await page.locator("dialog").innerText()).includes("never published"), "what skipping does");
  await page.click("dialog button[type=submit]");
  await page.waitForSelector(".parked tr:has-text('order-32')", { state: "detached" });
  await until("its key goes on", async () => (await act("published order-32")) === "sent");
  await visit(page, "#/audit");
  await until("it is in the audit log", async () => (await text(page)).includes("the queue is there"));
}

/** The other answer overwrites. */
export async function dirtyForced({ page }) {
  const before = await act("units 3");
  const xid = await act("dirty 3");
  await visit(page, "#/transactions?status=needs_operator");
  await page.waitForSelector(".table .row");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.click("a:has-text('Look at its rows')");
  await page.click("label:has(input[value=force_before])");
  await page.fill("input[name=reason]", "the counter has told us");
  await page.click(".answer button[type=submit]");
  await until("it is rolled back", isRolledBack(page));
  ensure((await act("units 3")) === before, `the value of before is back, of ${xid}`);
}

/** Several are selected: first it is said what would change, then each has its result. */
export async function bulk({ page }) {
  await act("begin 3");
  const holder = await act("hold 2");
  await visit(page, "#/transactions?name=long-list");
  await until("three are listed", async () => (await rows(page).count()) === 3);
  for (const box of await page.locator(".row input[type=checkbox]").all()) await box.check();
  await page.click(".bulk button:has-text('rollback')");
  await until("it says what would change", async () =>
    (await page.locator("dialog").innerText()).includes("3 would change, 0 would be refused"));
  ensure((await page.locator(".results li").first().innerText()).includes("is rolled back; it has no branch"),
    "and of each what");
  ensure((await page.locator(".row .badge.active").count()) === 3, "nothing is changed yet");
  await page.fill("dialog input[name=reason]", "test");
  await page.click("dialog button[type=submit]");
  await until("each has its result", async () => {
    const results = await page.locator(".results li").allInnerTexts();
    return results.length === 3 && results.every((result) => result.endsWith("rolled back"));
  });
  ensure((await page.locator("dialog").innerText()).includes("3 done, 0 refused"), "they are counted");
  await page.click("dialog footer button");
  await until("they are rolled back", async () =>
    (await page.locator(".row .badge.rolled_back").count()) === 3);
  ensure((await page.locator(".bulk").count()) === 0, "nothing is selected any more");

  // All that the search finds: of one row that is selected, and one that has ended.
  await visit(page, "#/transactions?name=count-stock");
  await until("it is listed", async () => (await page.locator(".row .badge.active").count()) >= 1);
  await page.locator(".row input[type=checkbox]").first().check();
  await page.check(".bulk input[name=all]");
  await page.click(".bulk button:has-text('pause')");
  await until("it is refused", async () =>
    (await page.locator(`.results li:has-text("${holder}")`).innerText()).includes("HF-TC-NOT-APPLICABLE"));
  ensure(await page.locator("dialog button[type=submit]").isDisabled(), "there is nothing to do");
  await page.click("dialog footer button");
  await act("release");
  await visit(page, "#/audit");
  await until("it is in the audit log as a whole", async () =>
    (await text(page)).includes("rollback, 3 targets, 3 done, 0 refused: test"));
}

/** A viewer sees the same and cannot act, neither by the page nor past it. */
export async function viewer({ browser }) {
  const holder = await act("hold 2");
  const { page, context, faults } = await signedIn(browser, TOKENS.viewer);
  await visit(page, `#/transactions/${encodeURIComponent(holder)}`);
  await page.waitForSelector(".waterfall");
  const buttons = await page.locator(".title button").allInnerTexts();
  ensure(buttons.join() === "JSON,Export", `a viewer has these buttons: ${buttons}`);
  const status = await page.evaluate(async (xid) => {
    const path = `/api/v1/transactions/${encodeURIComponent(xid)}/rollback`;
    const response = await fetch(path, { method: "POST", body: "{}", headers: { "content-type": "application/json" } });
    return `${response.status} ${(await response.json()).code}`;
  }, holder);
  ensure(status === "403 HF-ADM-FORBIDDEN", `past the page: ${status}`);
  ensure(faults.every((fault) => fault.includes("403")), faults.join("\n"));
  await context.close();
  await act("release");
}

/** The coordinator is killed under the page, which says so, and goes on when it is back. */
export async function killed({ page, faults }) {
  await visit(page, "#/transactions");
  await page.waitForSelector(".table .row");
  const before = await rowCount(page);
  await act("kill");
  await page.waitForSelector(".lost");
  ensure((await rowCount(page)) === before, "what was seen stays");
  await act("start");
  await page.waitForSelector(".lost", { state: "detached" });
  await act("orders 2");
  await until("what is new appears, without a reload", async () => (await rowCount(page)) > before);
  ensure((await page.locator("nav .caller").innerText()).includes("alice"), "the page is still signed in");
  // Refused connections are what this scene is about.
  const others = faults.filter((fault) => !/ERR_|Failed to load/.test(fault));
  ensure(others.length === 0, others.join("\n"));
  faults.length = 0;
}

/** Ten thousand rows scroll, of which few are in the page. */
export async function long({ page }) {
  await act("begin 10000");
  await visit(page, "#/transactions?name=long-list");
  await page.waitForSelector(".table .row");
  const box = page.locator(".table .rows");
  const started = Date.now();
  await until("all are there", async () => {
    await box.evaluate((it) => it.scrollTo(0, it.scrollHeight));
    return (await rowCount(page)) >= 10_000;
  });
  ensure((await rows(page).count()) < 100, "few rows are in the page");
  const steps = await box.evaluate(async (it) => {
    const steps = [];
    for (let at = 0; at < 60; at += 1) {
      const before = performance.now();
      it.scrollTo(0, (it.scrollHeight / 60) * at);
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      steps.push(performance.now() - before);
    }
    return steps.sort((one, other) => one - other);
  });
  console.log(`  10,000 rows after ${Date.now() - started} ms; steps of scrolling: ${steps[30].toFixed()} ms, at most ${
    steps[59].toFixed()}`);
  // What changes far down the list is seen there too.
  const last = await rows(page).last().locator("a").getAttribute("href");
  await page.evaluate(async (href) => {
    const xid = href.split("/").at(-1);
    await fetch(`/api/v1/transactions/${xid}/rollback`, {
      method: "POST", body: "{}", headers: { "content-type": "application/json" },
    });
  }, last);
  await until("a row far down is kept up to date", async () =>
    (await page.locator(`.row:has(a[href="${last}"]) .badge.rolled_back`).count()) === 1);
  ensure((await rowCount(page)) >= 10_000, "the list stays as long as it is");
  for (const product of [1, 2]) await act(`hold ${product}`);
  await visit(page, "#/locks");
  await until("what few hold among them is listed", async () => {
    const listed = (await rows(page).allInnerTexts()).join();
    return listed.includes("stock 1") && listed.includes("stock 2");
  });
}

/** Every screen fits, from a narrow phone to a wide desk. */
export async function widths({ page }) {
  const xid = await act("dirty 3");
  const transaction = `transactions/${encodeURIComponent(xid)}`;
  await visit(page, `#/${transaction}`);
  const rows = await until("the dirty write is refused", () =>
    page.locator("a:has-text('Look at its rows')").first().getAttribute("href"));
  const saga = `sagas/${encodeURIComponent(await act("saga order-19"))}`;
  for (const width of [320, 768, 2560]) {
    await page.setViewportSize({ width, height: 800 });
    for (const address of [
      "", "transactions", transaction, rows.slice(2), "locks", "sagas", saga, "events", "named-locks", "processes",
      "cluster", "audit", "first-start",
    ]) {
      await visit(page, `#/${address}`);
      await page.waitForTimeout(150);
      const wide = await page.evaluate(() => document.scrollingElement?.scrollWidth ?? 0);
      ensure(wide <= width, `${address || "needs you"} is ${wide} wide at ${width}`);
    }
  }
  await page.setViewportSize({ width: 1280, height: 800 });
}

/** The first paint, and that nothing is loaded from elsewhere or refused by the policy. */
export async function paint({ page, faults }) {
  await page.reload();
  await page.waitForSelector("h1");
  const paint = await page.evaluate(() =>
    performance.getEntriesByName("first-contentful-paint").map(({ startTime }) => startTime)[0]);
  const bytes = await page.evaluate(() =>
    performance.getEntriesByType("resource").filter(({ name }) => name.includes("/console/"))
      .reduce((sum, entry) => sum + /** @type {PerformanceResourceTiming} */ (entry).decodedBodySize, 0));
  console.log(`  first paint after ${paint?.toFixed()} ms; ${bytes} bytes`);
  ensure(bytes < 250_000, `${bytes} bytes`);
  ensure(faults.length === 0, faults.join("\n"));
}
