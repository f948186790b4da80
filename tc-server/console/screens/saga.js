// One saga: its steps as a graph, their inputs and outputs, and what may be done.
import { useState } from "../vendor/hooks.js";
import { mayAct, post, transactionPath } from "../lib/api.js";
import { duration, moment, when, words } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import {
  Age, Badge, Confirm, Facts, Labels, Panel, ProblemNote, Screen, Timeline, html,
} from "../lib/parts.js";
import { transactionLink } from "../lib/route.js";

const sagaPath = (xid) => `/api/v1/sagas/${encodeURIComponent(xid)}`;

export function Saga({ xid }) {
  const { data: saga, problem } = useLive(sagaPath(xid));
  if (!saga) return html`<${Screen} title="Saga"><${ProblemNote} problem=${problem} /><//>`;
  return html`<${Detail} saga=${saga} problem=${problem} />`;
}

/** @param {{ saga: import("../lib/types").SagaDetail, problem: any }} props */
function Detail({ saga, problem }) {
  const [opened, setOpened] = useState("");
  const [action, setAction] = useState(/** @type {any} */ (null));
  const step = saga.steps.find(({ name }) => name === opened);
  const isOpen = ["running", "compensating", "needs_operator"].includes(saga.status);
  const beside = html`<a class="button" href=${transactionLink(saga.xid)}>As a transaction</a>
    ${mayAct() && html`
    ${saga.awaits.map((path) => html`<button type="button" key=${path} class="act"
      onClick=${() => setAction({ name: "signal", path })}>Signal ${path}</button>`)}
    ${saga.status === "running" && html`<button type="button" class="danger"
      onClick=${() => setAction({ name: "cancel" })}>Cancel</button>`}
    ${isOpen && ["retry", saga.paused ? "resume" : "pause"].map((name) => html`<button type="button" key=${name}
      onClick=${() => setAction({ name })}>${name}</button>`)}`}`;
  return html`<${Screen} title=${saga.name} beside=${beside}>
    <${ProblemNote} problem=${problem} />
    <div class="summary"><${Badge} word=${saga.status} /> ${saga.paused && html`<${Badge} word="paused" />`}
      <b>${saga.key}</b> <${Labels} labels=${saga.labels} /> <code class="id">${saga.xid}</code></div>
    ${saga.cause && html`<p class="call">${saga.cause}</p>`}
    <${Facts} facts=${[
      ["application", saga.application],
      ["begun", moment(saga.begun_at)],
      ["age", html`<${Age} ageMs=${saga.age_ms} since=${saga.begun_at} />`],
      ["compensated, if its pivot has not begun, at", isOpen && saga.deadline && when(saga.deadline)],
      ["steps done", `${saga.steps_done} of ${saga.step_count}`],
      ["ended", saga.ended_at && moment(saga.ended_at)],
    ]} />
    <${Panel} title="Steps"><${Graph} steps=${saga.steps} opened=${opened} open=${setOpened} /><//>
    ${step && html`<${Step} step=${step} act=${setAction} />`}
    <${Panel} title="What happened"><${Timeline} entries=${saga.timeline} /><//>
    ${action && html`<${Act} action=${action} xid=${saga.xid} close=${() => setAction(null)} />`}
  <//>`;
}

/** Groups one after the other, the steps of a group below each other, children in a box of theirs. */
function Graph({ steps, opened, open, within = undefined }) {
  const own = steps.filter((step) => (step.within ?? undefined) === within);
  const groups = [...new Set(own.map(({ group }) => group))].sort((one, other) => one - other);
  return html`<div class="scroll"><div class="saga">${groups.map((group) => html`<div class="group" key=${group}>
    ${own.filter((step) => step.group === group).map((step) => html`<div key=${step.name}
        class=${`step ${step.state} ${step.name === opened ? "at" : ""}`}>
      <button type="button" onClick=${() => open(step.name)}>
        <b>${step.name.slice(step.name.lastIndexOf("/") + 1)}</b>
        <small>${words(step.kind)}</small> <${Badge} word=${standing(step)} />
        ${step.next_attempt && html`<small>${attempt(step.next_attempt)}</small>`}</button>
      ${step.kind === "child" && html`<${Graph} steps=${steps} within=${step.name} opened=${opened} open=${open} />`}
    </div>`)}</div>`)}</div></div>`;
}

/** A step that waits for a signal runs as well, but it is for a person to end it. */
const standing = ({ kind, state }) => (kind === "signal" && state === "running" ? "awaited" : state);

function attempt({ state, at }) {
  const texts = {
    asked: "a process has the call",
    due: at ? `next attempt at ${when(at)}` : "next attempt at once",
    paused: "paused",
    waits_for_process: "no process for it",
  };
  return texts[state] ?? words(state);
}

function Step({ step, act }) {
  const isStuck = step.state.endsWith("_stuck");
  const beside = mayAct() && isStuck && html`<button type="button"
    onClick=${() => act({ name: "resolve", path: step.name, branch: step.branch })}>Put right by hand</button>`;
  return html`<${Panel} title=${step.name} beside=${beside}><${Facts} facts=${[
    ["resource", step.resource], ["action", step.action], ["branch", step.branch],
    ["started", step.started_at && moment(step.started_at)],
    ["ended", step.ended_at && moment(step.ended_at)],
    ["failed attempts", step.attempts || ""],
    ["last failure", step.last_failure && `${when(step.last_failure.at)}: ${step.last_failure.error}`],
    ["attempts, then given up", step.retry?.attempts],
    ["may take", step.timeout_ms && duration(step.timeout_ms)],
    ["times out at", step.times_out_at && when(step.times_out_at)],
    ["saga", step.saga], ["output of", step.output_of],
    ["takes the output of", step.takes?.join(", ")],
  ]} />
  <div class="halves"><${Payload} title="Input" payload=${step.input} />
    <${Payload} title="Output" payload=${step.output} /></div><//>`;
}

const Payload = ({ title, payload }) => payload && html`<div><h3>${title}</h3>
  <pre class="json">${payload.json === undefined ? payload.text : JSON.stringify(payload.json, null, 2)}</pre>
  ${payload.cut && html`<p class="muted">Cut: it has ${payload.bytes} bytes.</p>`}</div>`;

const EFFECTS = {
  signal: "The step that waits for this signal is done, with this value, and the saga goes on.",
  cancel: "The saga is compensated, if its pivot has not begun: every step that was done is undone.",
  retry: "Calls that failed are made again at once.",
  pause: "No call is made until the saga is resumed.",
  resume: "Calls are made again.",
  resolve: "What this step was to do, or to undo, you have done by hand. It counts as done, and the saga goes on.",
};

function parsed(payload) {
  try {
    return JSON.parse(payload);
  } catch {
    throw new Error('The value is no JSON: a text needs quotation marks, as in "Ada".');
  }
}

function Act({ action: { name, path, branch }, xid, close }) {
  const [payload, setPayload] = useState("null");
  const act = async (reason) => {
    if (name === "signal") {
      await post(`${sagaPath(xid)}/signal`, { signal: path, payload: parsed(payload), reason });
    } else if (name === "resolve") {
      const resolution = "accept_current";
      await post(`${transactionPath(xid)}/branches/${branch}/resolve`, { resolution, reason });
    } else if (name === "cancel") {
      await post(`${sagaPath(xid)}/cancel`, { reason });
    } else {
      await post(`${transactionPath(xid)}/${name}`, { reason });
    }
  };
  return html`<${Confirm} title=${path ? `${name} ${path}?` : `${name} this saga?`}
    verb=${name} kind=${name === "cancel" ? "danger" : ""} act=${act} close=${close}>
    <p>${EFFECTS[name]}</p>
    ${name === "signal" && html`<label class="reason">Value, as JSON
      <textarea name="payload" rows="3" value=${payload}
        onInput=${(event) => setPayload(event.target.value)} /></label>`}<//>`;
}
