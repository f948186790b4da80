// A nightly report that one process at a time writes, wherever cron starts it.
//
//     node dist/nightly.js --day 2026-11-27 --database postgres://...
//
// The lock keeps others from doing the work in vain. What keeps a late writer out is the fencing
// token, which each write checks: a process may be stopped for longer than its lease, and go on.

import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

import pg from "pg";

import { Coordinator, type Lock, LockBusy } from "./handfast.js";

const TABLE = `
CREATE TABLE IF NOT EXISTS report (
    day TEXT PRIMARY KEY, lines INTEGER NOT NULL, fence BIGINT NOT NULL)
`;
// Writes nothing where a later holder has written.
const WRITE = `
INSERT INTO report (day, lines, fence) VALUES ($1, $2, $3)
ON CONFLICT (day) DO UPDATE SET lines = excluded.lines, fence = excluded.fence
WHERE report.fence <= excluded.fence
`;

const { values: given } = parseArgs({
  options: {
    coordinator: { type: "string", default: "127.0.0.1:7091" },
    day: { type: "string", default: "2026-11-27" },
    database: { type: "string", default: "postgres://127.0.0.1/reports" },
    lines: { type: "string", default: "5" },
    seconds: { type: "string", default: "0.1" }, // the work of one line
    lease: { type: "string", default: "30" }, // in seconds
    wait: { type: "string", default: "0" }, // for the lock, in seconds
  },
});

async function writeReport(pool: pg.Pool, lock: Lock): Promise<void> {
  for (let line = 1; line <= Number(given.lines); line += 1) {
    await sleep(Number(given.seconds) * 1000); // the work
    const { rowCount } = await pool.query(WRITE, [given.day, line, lock.fence]);
    if (rowCount === 0) {
      throw new Error(`a later holder has written: token ${lock.fence} is too old`);
    }
    console.log(`line ${line} under token ${lock.fence}`);
  }
}

const coordinator = new Coordinator(given.coordinator, "nightly");
const pool = new pg.Pool({ connectionString: given.database, max: 1 });
const options = {
  leaseMs: Number(given.lease) * 1000,
  waitMs: Number(given.wait) * 1000,
  label: "nightly.ts",
};
try {
  await pool.query(TABLE);
  await coordinator.withLock(`nightly-report/${given.day}`, options, (lock) =>
    writeReport(pool, lock),
  );
} catch (error) {
  if (error instanceof LockBusy) {
    console.log(error.message);
  } else {
    console.error(String(error));
    process.exitCode = 1;
  }
} finally {
  coordinator.close();
  await pool.end();
}
