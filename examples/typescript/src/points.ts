// A service that takes part over HTTP, in TCC and in sagas: it keeps customers' points and the
// seats of a flight in PostgreSQL.
//
//     node dist/points.js --port 7302 --secret-file points.key --database postgres://...

import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { parseArgs } from "node:util";

import pg from "pg";

const TABLES = `
CREATE TABLE IF NOT EXISTS points (customer INTEGER PRIMARY KEY, free INTEGER, held INTEGER);
CREATE TABLE IF NOT EXISTS seats (flight TEXT PRIMARY KEY, free INTEGER, held INTEGER);
CREATE TABLE IF NOT EXISTS fence (
    xid TEXT, branch TEXT, state TEXT NOT NULL, answer TEXT NOT NULL,
    made_at TIMESTAMPTZ NOT NULL DEFAULT now(), PRIMARY KEY (xid, branch));
INSERT INTO points VALUES (7, 1000, 0) ON CONFLICT DO NOTHING;
INSERT INTO seats VALUES ('HF1', 20, 0) ON CONFLICT DO NOTHING;
`;
const BODY_BYTES_MAX = 256 * 1024;
const SIGNATURE_AGE_MS_MAX = 300_000;

/** It must not be done, and asking again would not help. */
class Refused extends Error {}

/** It cannot be said yet; the coordinator asks again. */
class NotNow extends Error {}

// ---- the work: each function changes the rows of one local transaction --------------------------

type Work = (db: pg.ClientBase, body: any) => Promise<unknown>;

async function change(db: pg.ClientBase, statement: string, ...values: unknown[]): Promise<void> {
  const { rowCount } = await db.query(statement, values);
  if (rowCount !== 1) throw new Refused("not enough left");
}

const take = "UPDATE points SET free = free - $2 WHERE customer = $1 AND free >= $2";
const give = "UPDATE points SET free = free + $2 WHERE customer = $1";

// What the coordinator posts to. TCC: {resource}/try, confirm, cancel, with the input as the body.
// Sagas: {resource}/{action}/action, compensation, with a body that has the input in it.
const WORK: Record<string, Work> = {
  "/handfast/debit/try": (db, it) =>
    change(
      db,
      "UPDATE points SET free = free - $2, held = held + $2 WHERE customer = $1 AND free >= $2",
      it.customer,
      it.points,
    ),
  "/handfast/debit/confirm": (db, it) =>
    change(db, "UPDATE points SET held = held - $2 WHERE customer = $1", it.customer, it.points),
  "/handfast/debit/cancel": (db, it) =>
    change(
      db,
      "UPDATE points SET free = free + $2, held = held - $2 WHERE customer = $1",
      it.customer,
      it.points,
    ),
  "/handfast/seat/try": (db, it) =>
    change(
      db,
      "UPDATE seats SET free = free - 1, held = held + 1 WHERE flight = $1 AND free >= 1",
      it.flight,
    ),
  "/handfast/seat/confirm": (db, it) =>
    change(db, "UPDATE seats SET held = held - 1 WHERE flight = $1", it.flight),
  "/handfast/seat/cancel": (db, it) =>
    change(db, "UPDATE seats SET free = free + 1, held = held - 1 WHERE flight = $1", it.flight),
  "/handfast/trip/debit/action": async (db, call) => {
    await change(db, take, call.input.customer, call.input.points);
    return { taken: call.input.points }; // the step's output
  },
  "/handfast/trip/debit/compensation": (db, call) =>
    change(db, give, call.input.customer, call.input.points),
  "/handfast/trip/book/action": (db, call) =>
    change(
      db,
      "UPDATE seats SET free = free - 1 WHERE flight = $1 AND free >= 1",
      call.input.flight,
    ),
  "/handfast/trip/book/compensation": (db, call) =>
    change(db, "UPDATE seats SET free = free + 1 WHERE flight = $1", call.input.flight),
};

// ---- the fence: each operation of a branch takes effect once ------------------------------------

interface Branch {
  xid: string;
  id: string;
  operation: string;
}

interface State {
  state: string;
  answer: string;
}

/** Runs the work and records its end in one local transaction, or gives the recorded end. */
async function runOnce(pool: pg.Pool, branch: Branch, work: Work, body: unknown) {
  const db = await pool.connect();
  let isBroken = false;
  try {
    await db.query("BEGIN");
    // First of all: of two operations of one branch, one waits here for the other.
    const enter = "INSERT INTO fence VALUES ($1, $2, 'absent', 'null') ON CONFLICT DO NOTHING";
    await db.query(enter, [branch.xid, branch.id]);
    const look = "SELECT state, answer FROM fence WHERE xid = $1 AND branch = $2 FOR UPDATE";
    const row: State = (await db.query(look, [branch.xid, branch.id])).rows[0];
    const next = await fenced(db, branch.operation, row, () => work(db, body));
    const write = "UPDATE fence SET state = $3, answer = $4 WHERE xid = $1 AND branch = $2";
    await db.query(write, [branch.xid, branch.id, next.state, next.answer]);
    await db.query("COMMIT");
    if (next.state === "refused" && isForward(branch.operation)) {
      throw new Refused(JSON.parse(next.answer));
    }
    return branch.operation === "action" ? JSON.parse(next.answer) : undefined;
  } catch (error) {
    await db.query("ROLLBACK").catch(() => (isBroken = true));
    throw error;
  } finally {
    db.release(isBroken);
  }
}

function isForward(operation: string): boolean {
  return operation === "try" || operation === "action";
}

/** Returns the state that follows, and the answer to keep. */
async function fenced(
  db: pg.ClientBase,
  operation: string,
  row: State,
  work: () => Promise<unknown>,
): Promise<State> {
  const { state } = row;
  if (isForward(operation)) {
    if (["done", "confirmed", "refused"].includes(state)) return row;
    if (state !== "absent") throw new Refused("it comes after its cancel");
    await db.query("SAVEPOINT work");
    try {
      return { state: "done", answer: JSON.stringify((await work()) ?? null) };
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      await db.query("ROLLBACK TO SAVEPOINT work");
      // A late attempt is refused alike.
      return { state: "refused", answer: JSON.stringify(error.message) };
    }
  }
  if (operation === "confirm") {
    if (state === "confirmed") return row;
    if (state === "done") {
      await work();
      return { ...row, state: "confirmed" };
    }
  }
  if (operation === "cancel" || operation === "compensation") {
    if (state === "done") await work();
    // Nothing to undo otherwise; from here on a try comes too late.
    if (["absent", "done", "refused", "undone"].includes(state)) return { ...row, state: "undone" };
  }
  throw new NotNow(`${operation} of a branch that is ${state}`);
}

// ---- HTTP ---------------------------------------------------------------------------------------

function isFromTheCoordinator(
  secret: string,
  path: string,
  request: IncomingMessage,
  body: Buffer,
): boolean {
  const names = ["handfast-xid", "handfast-branch", "handfast-operation", "handfast-timestamp"];
  const values = names.map((name) => String(request.headers[name] ?? ""));
  const age = Math.abs(Date.now() - Number(values[3] || NaN));
  if (!(age <= SIGNATURE_AGE_MS_MAX)) return false;
  const hmac = createHmac("sha256", secret);
  for (const line of ["POST", path, ...values]) hmac.update(`${line}\n`);
  const expected = Buffer.from(`v1=${hmac.update(body).digest("hex")}`);
  const given = Buffer.from(String(request.headers["handfast-signature"] ?? ""));
  return given.length === expected.length && timingSafeEqual(given, expected);
}

async function bodyOf(request: IncomingMessage): Promise<Buffer | undefined> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of request) {
    length += part.length;
    if (length > BODY_BYTES_MAX) return undefined;
    parts.push(part);
  }
  return Buffer.concat(parts);
}

/** Returns status and body of the answer. */
async function respond(
  pool: pg.Pool,
  secret: string,
  request: IncomingMessage,
): Promise<[number, unknown?]> {
  const path = request.url ?? "";
  if (request.method === "GET" && path === "/balance") return [200, await balance(pool)];
  if (request.method !== "POST") return [404, { message: "no such page" }];
  const body = await bodyOf(request);
  if (!body) return [413, { message: "too long" }];
  if (!isFromTheCoordinator(secret, path, request, body)) {
    return [401, { message: "not signed by the coordinator" }];
  }
  const work = Object.hasOwn(WORK, path) ? WORK[path] : undefined;
  if (!work) return [404, { message: "no such operation" }];
  const header = (name: string) => String(request.headers[`handfast-${name}`]);
  const branch = { xid: header("xid"), id: header("branch"), operation: header("operation") };
  if (!path.endsWith(`/${branch.operation}`)) {
    return [400, { message: "path and operation differ" }];
  }
  try {
    return [200, await runOnce(pool, branch, work, JSON.parse(body.toString()))];
  } catch (error) {
    const message = String(error instanceof Error ? error.message : error);
    if (error instanceof Refused) return [409, { code: "refused", message }];
    return [503, { message }]; // the coordinator asks again
  }
}

/** Everything, for people and tests. */
async function balance(pool: pg.Pool) {
  const sum = async (table: string) => {
    const select = `SELECT sum(free)::INTEGER AS free, sum(held)::INTEGER AS held FROM ${table}`;
    return (await pool.query(select)).rows[0];
  };
  return { points: await sum("points"), seats: await sum("seats") };
}

async function main(): Promise<void> {
  const { values: given } = parseArgs({
    options: {
      port: { type: "string", default: "7302" },
      "secret-file": { type: "string", default: "points.key" },
      database: { type: "string", default: "postgres://127.0.0.1/points" },
    },
  });
  // The line break at the end of the file is no part of the secret.
  const secret = readFileSync(given["secret-file"], "utf8").trim();
  const pool = new pg.Pool({ connectionString: given.database, max: 8 });
  pool.on("error", (error) => console.error(`database: ${error.message}`)); // of an idle connection
  await pool.query(TABLES);
  const server = createServer(async (request: IncomingMessage, response: ServerResponse) => {
    const [status, value] = await respond(pool, secret, request).catch((error) => {
      console.error(error);
      return [503, { message: "not now" }] as [number, unknown];
    });
    response.writeHead(status, { "content-type": "application/json" });
    response.end(value === undefined ? "" : JSON.stringify(value));
  });
  server.listen(Number(given.port), "127.0.0.1", () => {
    console.log(`points at http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  });
}

await main();
