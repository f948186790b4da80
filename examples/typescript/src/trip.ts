// A trip as a saga: points are taken, a person approves, the seat is booked. If the person says no,
// the time is up, or no seat is left, the points are given back.
//
//     node dist/trip.js start trip-1     # from anywhere
//     node dist/trip.js approve XID      # later, from anywhere else
//     node dist/trip.js wait XID         # until it has ended

import { parseArgs } from "node:util";

import type { SagaReply__Output } from "./generated/handfast/v1/SagaReply.js";
import { Coordinator, sagaStep, signalStep, words } from "./handfast.js";

const { values: given, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    coordinator: { type: "string", default: "127.0.0.1:7091" },
    participant: { type: "string", default: "http://127.0.0.1:7302" },
    customer: { type: "string", default: "7" },
    points: { type: "string", default: "30" },
    flight: { type: "string", default: "HF1" },
    days: { type: "string", default: "3" }, // how long it waits for approval
  },
});

function steps() {
  const trip = `${given.participant}/handfast/trip`;
  const debit = { customer: Number(given.customer), points: Number(given.points) };
  return [
    sagaStep("debit", "compensable", [trip, "debit"], debit, { group: 0 }),
    signalStep("approval", 1),
    // The point of no return. The output of "debit", the step 0, is handed to it.
    sagaStep("book", "pivot", [trip, "book"], { flight: given.flight }, { group: 2, takes: [0] }),
  ];
}

function show(reply: SagaReply__Output): void {
  console.log(reply.xid, words(reply.status, "SAGA_STATUS_"), reply.cause);
  for (const step of reply.steps) {
    const output = step.output?.length ? step.output.toString() : "";
    console.log(`  ${step.name}: ${words(step.state, "SAGA_STEP_STATE_")} ${output}`.trimEnd());
  }
}

async function act(coordinator: Coordinator, what: string, saga: string) {
  switch (what) {
    case "start":
      return coordinator.startSaga(saga, "trip", steps(), Number(given.days) * 86_400_000);
    case "approve":
      return coordinator.signalSaga(saga, "approval", { by: "the desk" });
    case "cancel":
      return coordinator.cancelSaga(saga, "not approved");
    case "show":
      return coordinator.saga(saga);
    case "wait":
      return coordinator.saga(saga, 60_000);
    default:
      throw new Error("start KEY, or approve, cancel, show or wait XID");
  }
}

const [what = "", saga = ""] = positionals;
const coordinator = new Coordinator(given.coordinator, "travel");
try {
  show(await act(coordinator, what, saga));
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
} finally {
  coordinator.close();
}
