// Buys a flight with points, as one global transaction: points and seat, or neither.
//
//     node dist/purchase.js --customer 7 --flight HF1 --points 30

import { parseArgs } from "node:util";

import { Coordinator, OutcomeUnknown, Refused } from "./handfast.js";

const { values: given } = parseArgs({
  options: {
    coordinator: { type: "string", default: "127.0.0.1:7091" },
    participant: { type: "string", default: "http://127.0.0.1:7302" },
    orders: { type: "string" }, // a service in AT mode that places the order as well
    customer: { type: "string", default: "7" },
    points: { type: "string", default: "30" },
    flight: { type: "string", default: "HF1" },
    first: { type: "string", default: "1" }, // the number of the first order
    count: { type: "string", default: "1" },
  },
});

async function buy(coordinator: Coordinator, number: number): Promise<void> {
  await coordinator.transaction("purchase", 30_000, async (xid) => {
    if (given.orders) await placeOrder(given.orders, xid, number);
    const debit = { customer: Number(given.customer), points: Number(given.points) };
    await coordinator.tryBranch(xid, `${given.participant}/handfast/debit`, debit);
    const seat = { flight: given.flight };
    await coordinator.tryBranch(xid, `${given.participant}/handfast/seat`, seat);
  });
}

/** Calls a service that works in the global: it finds the XID in the header. */
async function placeOrder(url: string, xid: string, number: number): Promise<void> {
  const headers = { TX_XID: xid, "TX-XID": xid };
  const signal = AbortSignal.timeout(10_000);
  const answer = await fetch(`${url}/orders/${number}`, { method: "POST", headers, signal });
  if (!answer.ok) throw new Error(`order ${number}: status ${answer.status}`);
}

const coordinator = new Coordinator(given.coordinator, "purchase");
const counts = { bought: 0, refused: 0, undone: 0, unknown: 0 };
const first = Number(given.first);
for (let number = first; number < first + Number(given.count); number += 1) {
  try {
    await buy(coordinator, number);
    counts.bought += 1;
  } catch (error) {
    if (error instanceof Refused) {
      counts.refused += 1;
      console.log(`refused: ${error.message}`);
    } else if (error instanceof OutcomeUnknown) {
      counts.unknown += 1;
      console.error(`not answered: ask for the status of ${error.message}`);
    } else {
      counts.undone += 1;
      console.error(`rolled back: ${error}`);
    }
  }
}
coordinator.close();
console.log(Object.entries(counts).map(([name, count]) => `${name} ${count}`).join(", "));
