// Small parts that several screens are made of.
import htm from "../vendor/htm.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { h } from "../vendor/preact.js";
import { duration, when, words } from "./format.js";
import { transactionLink } from "./route.js";

/** Writes a part of a page. Values in it become text or attributes, never markup. */
export const html = htm.bind(h);

/** A screen: its title, what stands beside it, and its content. */
export function Screen({ title, beside = null, children }) {
  useEffect(() => {
    document.title = `${title} – Handfast`;
  }, [title]);
  return html`<div class="screen">
    <header class="title"><h1>${title}</h1><div class="beside">${beside}</div></header>
    ${children}
  </div>`;
}

/** A box with a heading. */
export const Panel = ({ title, beside = null, children, kind = "" }) => html`
  <section class=${`panel ${kind}`}>
    ${title && html`<header><h2>${title}</h2><div class="beside">${beside}</div></header>`}
    ${children}
  </section>`;

/** A status or state, in its colour. */
export const Badge = ({ word, note = "" }) => html`
  <span class=${`badge ${word}`}>${words(word)}${note && html` <small>${note}</small>`}</span>`;

/** What stands where there is nothing. */
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

/** Why something is not shown or was not done. */
export const ProblemNote = ({ problem }) =>
  problem &&
  html`<p class="problem" role="alert">
    ${problem.message} ${problem.code && html`<code>${problem.code}</code>`}
  </p>`;

/** A link to a transaction. */
export const Xid = ({ xid, children }) =>
  html`<a class="id" href=${transactionLink(xid)} title=${xid}>${children ?? xid}</a>`;

/** What happened, in its order. */
export const Timeline = ({ entries }) => html`<ol class="timeline">
  ${entries.map((entry, at) => html`<li key=${at} class=${entry.kind ?? ""}>
    <time title=${entry.at}>${when(entry.at)}</time> <span>${entry.what}</span>
    ${entry.by && html`<${Xid} xid=${entry.by}>the one in the way<//>`}</li>`)}</ol>`;

/** Labels of a transaction. */
export const Labels = ({ labels }) =>
  labels &&
  Object.entries(labels).map(
    ([name, value]) => html`<span class="label" key=${name}>${name}=${value}</span>`,
  );

/** A time since something, which grows by itself. `ageMs` is true now. */
export function Age({ ageMs, since }) {
  const [now, setNow] = useState(Date.now());
  const start = useRef({ since, at: Date.now() - ageMs });
  // The server's own clock says how old it is; only what has passed here since is added.
  if (start.current.since !== since) start.current = { since, at: Date.now() - ageMs };
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return html`<time title=${since}>${duration(Math.max(ageMs, now - start.current.at))}</time>`;
}

/** A line of numbers over time. Missing ones leave a gap. */
export function Sparkline({ values, label }) {
  const [width, height] = [120, 28];
  const known = values.filter((value) => value != null);
  const top = Math.max(...known, 1);
  const x = (at) => (values.length < 2 ? width : (at / (values.length - 1)) * width);
  const y = (value) => height - 2 - (value / top) * (height - 4);
  let path = "", isDown = false;
  values.forEach((value, at) => {
    if (value != null) path += `${isDown ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    isDown = value != null;
  });
  return html`<svg class="spark" viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${label}
    preserveAspectRatio="none"><path d=${path} /></svg>`;
}

/** A line that can be copied. */
export function Copyable({ text }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<div class="copyable"><pre>${text}</pre>
    <button type="button" onClick=${copy}>${isCopied ? "copied" : "copy"}</button></div>`;
}

/** Names and values. */
export const Facts = ({ facts }) => html`<dl class="facts">
  ${facts
    .filter(([, value]) => value != null && value !== "" && value !== false)
    .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
</dl>`;

/**
 * A question before an action: its consequence in words, a reason, and the button that does it.
 * `act(reason)` may throw; the problem is shown and the dialog stays. It also stays, to be read, if
 * `act` returns true. The button waits until `isReady`.
 */
export function Confirm({ title, children, verb, kind = "", isReady = true, act, close }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [reason, setReason] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const [isDone, setDone] = useState(false);
  useEffect(() => dialog.current?.showModal(), []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      if (await act(reason)) setDone(true);
      else close();
    } catch (caught) {
      setProblem(caught);
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} onClose=${close}>
    <form onSubmit=${submit}>
      <h2>${title}</h2>
      ${children}
      <label class="reason">Reason, for the audit log
        <input name="reason" maxlength="500" value=${reason}
          onInput=${(event) => setReason(event.target.value)} />
      </label>
      <${ProblemNote} problem=${problem} />
      <footer>
        <button type="button" onClick=${close}>${isDone ? "Close" : "Cancel"}</button>
        ${!isDone && html`<button type="submit" class=${`act ${kind}`} disabled=${isBusy || !isReady}>
          ${verb}</button>`}
      </footer>
    </form>
  </dialog>`;
}
