// A client of the coordinator: globals and tries by unary calls, sagas and locks over the stream.
//
// Copy it and change it as you like: it is a few hundred lines over generated types, not a package.
// `npm run build` generates the types from the .proto file.

import { randomBytes, randomUUID } from "node:crypto";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import * as grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

import type { ProtoGrpcType } from "./generated/coordinator.js";
import type { AcquireLockRequest } from "./generated/handfast/v1/AcquireLockRequest.js";
import type { BeginReply__Output } from "./generated/handfast/v1/BeginReply.js";
import type { ClientFrame } from "./generated/handfast/v1/ClientFrame.js";
import type { ClientMessage } from "./generated/handfast/v1/ClientMessage.js";
import type { CoordinatorClient } from "./generated/handfast/v1/Coordinator.js";
import type { Decision } from "./generated/handfast/v1/Decision.js";
import type { EndReply__Output } from "./generated/handfast/v1/EndReply.js";
import type { GetStatusReply__Output } from "./generated/handfast/v1/GetStatusReply.js";
import type { LockToken } from "./generated/handfast/v1/LockToken.js";
import type { ReplyWhen } from "./generated/handfast/v1/ReplyWhen.js";
import type { SagaReply__Output } from "./generated/handfast/v1/SagaReply.js";
import type { SagaStep } from "./generated/handfast/v1/SagaStep.js";
import type { ServerFrame__Output } from "./generated/handfast/v1/ServerFrame.js";
import type { ServerMessage__Output } from "./generated/handfast/v1/ServerMessage.js";
import type { TryBranchReply__Output } from "./generated/handfast/v1/TryBranchReply.js";

const PROTO = fileURLToPath(
  new URL("../../../proto/proto/handfast/v1/coordinator.proto", import.meta.url),
);
const AGENT = "handfast-typescript-example/1";
const CHANNEL_OPTIONS: grpc.ChannelOptions = {
  // A connection that says nothing for this long is given up. The default of gRPC is: never.
  "grpc.keepalive_time_ms": 5_000,
  "grpc.keepalive_timeout_ms": 5_000,
  "grpc.max_reconnect_backoff_ms": 2_000,
};
// Failures after which the same request may be sent again: no answer, or "not here, not now".
const SEND_AGAIN = [grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED];
// The same, as the stream says it.
const NOT_NOW = ["HF-TC-BUSY", "HF-TC-NOT-LEADING", "HF-TC-STOPPING"];
const ATTEMPT_MS_MAX = 5_000;
const WITHIN_MS = 30_000;
const PAUSE_MS_MIN = 100;
const PAUSE_MS_MAX = 2_000;
// A lock counts as lost this much before its lease can end: clocks run at different speeds.
const LEASE_MARGIN = 0.01;
const UNANSWERED_MAX = 1_000;
// An answered release is stored a moment later: it is sent again if the stream breaks by then.
const RELEASE_MS = 1_000;

/** The coordinator refused a request; `code` is stable and listed in docs/errors.md. */
export class HandfastError extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(`${message} (${code})`);
  }
}

/** The global is rolled back: nothing of it stays. */
export class RolledBack extends Error {}

/** The coordinator has not answered a decision in time. Ask `status` later; never roll back. */
export class OutcomeUnknown extends Error {}

/** A participant has refused its try. The global can only be rolled back. */
export class Refused extends Error {}

/** Another client holds the lock. */
export class LockBusy extends Error {}

/** There was no answer within the caller's time. */
export class NoAnswer extends Error {}

/** Sends one request, whose answer goes to the callback. */
type Call<Reply> = (
  ...to: [grpc.Metadata, grpc.CallOptions, grpc.requestCallback<Reply>]
) => grpc.ClientUnaryCall;

/** A connection to the coordinator. One for a process. */
export class Coordinator {
  readonly #calls: CoordinatorClient;
  readonly #metadata = new grpc.Metadata();
  readonly #client = randomBytes(16);
  #acquisitions = 0;
  #stream: Stream | undefined;

  constructor(
    address: string,
    readonly application: string,
    token?: string,
  ) {
    if (token) this.#metadata.set("authorization", `Bearer ${token}`);
    const forms = { longs: String, enums: String, defaults: true, oneofs: true };
    const definition = loadSync(PROTO, forms);
    const loaded = grpc.loadPackageDefinition(definition) as unknown as ProtoGrpcType;
    // For a coordinator with certificates: grpc.credentials.createSsl(...).
    const credentials = grpc.credentials.createInsecure();
    this.#calls = new loaded.handfast.v1.Coordinator(address, credentials, CHANNEL_OPTIONS);
  }

  close(): void {
    this.#stream?.close();
    this.#calls.close();
  }

  // ---- globals ---------------------------------------------------------------------------------

  /** Runs the work as one global: commits at its end, rolls back if it throws. */
  async transaction<T>(name: string, timeoutMs: number, work: (xid: string) => Promise<T>) {
    const xid = await this.begin(name, timeoutMs);
    let result: T;
    try {
      result = await work(xid);
    } catch (error) {
      await this.rollBack(xid, String(error));
      throw error;
    }
    await this.commit(xid);
    return result;
  }

  async begin(name: string, timeoutMs: number): Promise<string> {
    const request = { application: this.application, name, timeoutMs };
    // Sent again after a lost answer, it begins another global; the first ends at its timeout.
    return (await this.#ask<BeginReply__Output>((...to) => this.#calls.begin(request, ...to))).xid;
  }

  /** Has a participant over HTTP registered and its try called. */
  async tryBranch(xid: string, url: string, value: unknown, timeoutMs = 10_000): Promise<void> {
    const request = {
      xid,
      branchId: randomBranch(), // the same when the request is sent again
      resourceId: url,
      input: Buffer.from(JSON.stringify(value)),
      timeoutMs,
    };
    const attemptMs = timeoutMs + ATTEMPT_MS_MAX;
    const call: Call<TryBranchReply__Output> = (...to) => this.#calls.tryBranch(request, ...to);
    const reply = await this.#ask(call, attemptMs);
    if (reply.result === "done") return;
    throw new Refused(reply.refused?.error ?? `no answer: ${reply.unanswered?.error}`);
  }

  async commit(xid: string): Promise<void> {
    let reply: EndReply__Output;
    try {
      reply = await this.#end(xid, "DECISION_COMMIT", "", "REPLY_WHEN_DECIDED");
    } catch (error) {
      // Its timeout has passed, or it had no branch when the coordinator crashed.
      const codes = ["HF-TC-ALREADY-DECIDED", "HF-TC-UNKNOWN-XID"];
      if (error instanceof HandfastError && codes.includes(error.code)) {
        throw new RolledBack(error.message, { cause: error });
      }
      throw error;
    }
    if (!["GLOBAL_STATUS_COMMITTING", "GLOBAL_STATUS_COMMITTED"].includes(reply.status)) {
      throw new RolledBack(reply.rollbackReason);
    }
  }

  /** Waits until every branch is undone. If that takes too long, the coordinator goes on. */
  async rollBack(xid: string, reason = ""): Promise<void> {
    try {
      await this.#end(xid, "DECISION_ROLL_BACK", reason, "REPLY_WHEN_FINISHED");
    } catch (error) {
      if (!(error instanceof HandfastError || error instanceof OutcomeUnknown)) throw error;
    }
  }

  async status(xid: string): Promise<string> {
    const call: Call<GetStatusReply__Output> = (...to) => this.#calls.getStatus({ xid }, ...to);
    const reply = await this.#ask(call);
    return words(reply.status, "GLOBAL_STATUS_");
  }

  async #end(xid: string, decision: Decision, reason: string, replyWhen: ReplyWhen) {
    const request = { xid, decision, reason, replyWhen };
    const call: Call<EndReply__Output> = (...to) => this.#calls.end(request, ...to);
    try {
      return await this.#ask(call, WITHIN_MS);
    } catch (error) {
      if (error instanceof HandfastError) throw error;
      // An unanswered commit is never followed by a rollback: it may have been taken.
      throw new OutcomeUnknown(xid, { cause: error });
    }
  }

  /** Sends a request, and sends it again while there is no answer. */
  async #ask<Reply>(call: Call<Reply>, attemptMs = ATTEMPT_MS_MAX): Promise<Reply> {
    const until = performance.now() + WITHIN_MS;
    for (let pause = PAUSE_MS_MIN; ; pause = Math.min(pause * 2, PAUSE_MS_MAX)) {
      try {
        return await new Promise<Reply>((resolve, reject) => {
          const options = { deadline: Date.now() + attemptMs };
          call(this.#metadata, options, (error, reply) => {
            if (reply) resolve(reply);
            else reject(error);
          });
        });
      } catch (thrown) {
        const error = thrown as grpc.ServiceError;
        if (!SEND_AGAIN.includes(error.code)) {
          const code = error.metadata?.get("handfast-code")[0];
          throw code ? new HandfastError(String(code), error.details) : error;
        }
        if (performance.now() + pause > until) throw error;
      }
      await sleep(pause);
    }
  }

  // ---- sagas -----------------------------------------------------------------------------------

  /** Starts a saga, or finds the one with this key. */
  async startSaga(key: string, name: string, steps: SagaStep[], timeoutMs?: number) {
    const definition = timeoutMs === undefined ? { name, steps } : { name, steps, timeoutMs };
    const startSaga = { application: this.application, key, definition };
    return saga(await this.stream().ask({ startSaga }));
  }

  /** Returns the state of a saga; waits for its end if asked to. */
  async saga(xid: string, waitMs = 0) {
    const replyWhen = waitMs ? "REPLY_WHEN_FINISHED" : "REPLY_WHEN_DECIDED";
    return saga(await this.stream().ask({ getSaga: { xid, replyWhen } }, waitMs || WITHIN_MS));
  }

  /** Ends the step that waits for this signal; the payload is the step's output. */
  async signalSaga(xid: string, signal: string, payload: unknown) {
    const json = Buffer.from(JSON.stringify(payload ?? null));
    return saga(await this.stream().ask({ signalSaga: { xid, signal, payload: json } }));
  }

  /** Compensates a saga whose pivot has not begun. */
  async cancelSaga(xid: string, reason: string) {
    return saga(await this.stream().ask({ cancelSaga: { xid, reason } }));
  }

  // ---- named locks -----------------------------------------------------------------------------

  /** Holds a named lock for the work. Throws `LockBusy` if it is not granted in time. */
  async withLock<T>(
    name: string,
    options: { leaseMs: number; waitMs?: number; label?: string },
    work: (lock: Lock) => Promise<T>,
  ): Promise<T> {
    this.#acquisitions += 1;
    const token = { client: this.#client, number: this.#acquisitions };
    const lock = new Lock(this.stream(), name, token, options.leaseMs);
    await lock.acquire(options.waitMs ?? 0, options.label ?? "");
    try {
      return await work(lock);
    } finally {
      await lock.release();
    }
  }

  stream(): Stream {
    this.#stream ??= new Stream(this.#calls, this.#metadata, this.application);
    return this.#stream;
  }
}

function saga(reply: ServerMessage__Output): SagaReply__Output {
  if (!reply.saga) throw new Error(`not an answer about a saga: ${reply.body}`);
  return reply.saga;
}

/** A step of a saga. */
export function sagaStep(
  name: string,
  kind: "compensable" | "harmless" | "pivot" | "retriable",
  [resourceId, action]: [string, string],
  input: unknown,
  more: { group: number; takes?: number[] },
): SagaStep {
  return {
    name,
    kind: `SAGA_STEP_KIND_${kind.toUpperCase() as Uppercase<typeof kind>}`,
    resourceId,
    action,
    input: Buffer.from(JSON.stringify(input ?? null)),
    ...more,
  };
}

/** A step that waits for a signal of its name. */
export function signalStep(name: string, group: number): SagaStep {
  return { name, kind: "SAGA_STEP_KIND_SIGNAL", group };
}

/** `SAGA_STATUS_RUNNING` in the words of people. */
export function words(name: string, prefix: string): string {
  return name.replace(prefix, "").toLowerCase();
}

/** Random, positive, 63 bits. */
function randomBranch(): string {
  return String((randomBytes(8).readBigUInt64BE() >> 1n) | 1n);
}

/** A lease of a named lock, renewed in the background until it is released or lost. */
export class Lock {
  fence = "0"; // 64 bits: more than a number holds
  #heldUntil = 0;
  #isEnded = false;
  #renewal: NodeJS.Timeout | undefined;

  constructor(
    readonly stream: Stream,
    readonly name: string,
    readonly token: LockToken,
    readonly leaseMs: number,
  ) {}

  async acquire(waitMs: number, label: string): Promise<void> {
    const acquireLock: AcquireLockRequest = {
      name: this.name, token: this.token, label, leaseMs: this.leaseMs, waitMs,
    };
    const sent = performance.now();
    try {
      const reply = (await this.stream.ask({ acquireLock }, waitMs + WITHIN_MS)).acquireLock;
      if (!reply?.granted) {
        const holder = reply?.busy?.holder?.label || "another client";
        throw new LockBusy(`${this.name} is held by ${holder}`);
      }
      this.fence = reply.granted.fence;
      this.#extend(sent + Number(reply.granted.waitedMs));
    } catch (error) {
      if (error instanceof NoAnswer) await this.release(true); // it may be granted yet
      throw error;
    }
    this.#renewal = setInterval(() => void this.#renew(), this.leaseMs / 3);
  }

  /**
   * Whether no other client can hold it yet. The clock does not count the time in which the machine
   * was suspended: the fencing token, checked by the database, is what makes a write safe.
   */
  get isHeld(): boolean {
    return !this.#isEnded && performance.now() < this.#heldUntil;
  }

  async release(isDoubtful = false): Promise<void> {
    this.#end();
    const releaseLock = { name: this.name, token: this.token, isDoubtful };
    try {
      await this.stream.ask({ releaseLock }, this.leaseMs);
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error; // it ends by time then
    }
  }

  async #renew(): Promise<void> {
    const sent = performance.now();
    if (sent >= this.#heldUntil) return this.#end(); // a lost lock stays lost
    const renewLocks = { tokens: [this.token], leaseMs: this.leaseMs };
    try {
      const reply = await this.stream.ask({ renewLocks }, this.#heldUntil - sent);
      if (reply.renewLocks?.held[0]) this.#extend(sent);
      else this.#end();
    } catch (error) {
      console.error(`renewal of ${this.name}: ${error}`); // the next one, or the lease, decides
    }
  }

  #extend(since: number): void {
    this.#heldUntil = Math.max(this.#heldUntil, since + this.leaseMs * (1 - LEASE_MARGIN) - 5);
  }

  #end(): void {
    this.#isEnded = true;
    clearInterval(this.#renewal);
  }
}

type Question = Omit<ClientMessage, "id" | "body">;

/**
 * The stream `Connect`: made again when it breaks, and then every unanswered request is sent again
 * under its number.
 */
export class Stream {
  readonly #hello: ClientMessage;
  readonly #unanswered = new Map<string, [ClientMessage, (reply: ServerMessage__Output) => void]>();
  #released: [number, ClientMessage][] = [];
  #number = 1; // of the hello
  #open: grpc.ClientDuplexStream<ClientFrame, ServerFrame__Output> | undefined;
  #isClosed = false;

  constructor(
    readonly calls: CoordinatorClient,
    readonly metadata: grpc.Metadata,
    application: string,
  ) {
    this.#hello = { id: 1, hello: { clientId: randomUUID(), application, agent: AGENT } };
    void this.#run();
  }

  /** Sends a request and waits for its answer, through breaks of the stream. */
  async ask(question: Question, withinMs = WITHIN_MS): Promise<ServerMessage__Output> {
    const until = performance.now() + withinMs;
    for (let pause = PAUSE_MS_MIN; ; pause = Math.min(pause * 2, PAUSE_MS_MAX)) {
      const reply = await this.#askOnce(question, until);
      if (!reply.rejected) return reply;
      const { code, message } = reply.rejected;
      if (!NOT_NOW.includes(code) || performance.now() + pause > until) {
        throw new HandfastError(code, message);
      }
      await sleep(pause);
    }
  }

  #askOnce(question: Question, until: number): Promise<ServerMessage__Output> {
    if (this.#unanswered.size >= UNANSWERED_MAX) {
      throw new HandfastError("HF-TC-BUSY", "too many unanswered requests of this process");
    }
    const id = String((this.#number += 1));
    const message = { ...question, id };
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#unanswered.delete(id);
        reject(new NoAnswer(`no answer to ${Object.keys(question)[0]} in time`));
      }, Math.max(until - performance.now(), 0));
      this.#unanswered.set(id, [message, (reply) => {
        clearTimeout(timer);
        this.#unanswered.delete(id);
        if (question.releaseLock) {
          this.#released = [...this.#youngReleases(), [performance.now(), message]];
        }
        resolve(reply);
      }]);
      this.#open?.write({ messages: [message] });
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#open?.cancel();
  }

  #youngReleases(): [number, ClientMessage][] {
    const young = this.#released.filter(([at]) => at > performance.now() - RELEASE_MS);
    return young.slice(-UNANSWERED_MAX);
  }

  async #run(): Promise<void> {
    let pause = PAUSE_MS_MIN;
    while (!this.#isClosed) {
      const served = await this.#serve();
      pause = served ? PAUSE_MS_MIN : Math.min(pause * 2, PAUSE_MS_MAX);
      if (!this.#isClosed) await sleep(pause);
    }
  }

  /** Returns, when the stream has ended, whether the coordinator has answered anything. */
  #serve(): Promise<boolean> {
    const stream = this.calls.connect(this.metadata);
    const released = this.#youngReleases().map(([, message]) => message);
    const waiting = [...this.#unanswered.values()].map(([message]) => message);
    for (const message of [this.#hello, ...released, ...waiting]) {
      stream.write({ messages: [message] });
    }
    this.#open = stream;
    let served = false;
    return new Promise((resolve) => {
      stream.on("data", (frame: ServerFrame__Output) => {
        for (const message of frame.messages) {
          served = true;
          // It stops or does not lead: connect again.
          if (message.body === "goAway") stream.cancel();
          else this.#unanswered.get(message.id)?.[1](message);
        }
      });
      const end = () => {
        if (this.#open === stream) this.#open = undefined;
        resolve(served);
      };
      stream.on("error", (error: grpc.ServiceError) => {
        if (!this.#isClosed) console.error(`stream to the coordinator: ${error.details}`);
        end();
      });
      stream.on("end", end);
    });
  }
}
