// A drawing of who waits for whom, in columns: each waits for one further to the right.
import { transactionLink } from "./route.js";
import { short } from "./format.js";
import { Empty, html } from "./parts.js";

const NODES_MAX = 80;
/** An edge begins with a straight part, on which its label stands. */
const STUB = 110;
const [WIDTH, HEIGHT, GAP_X, GAP_Y] = [190, 44, 190, 26];
/** How far below its nodes an edge leads back. */
const BACK = 34;

/**
 * Draws the edges `{ from, to, label, isHeld }`; one that is not held is only before in the queue.
 * `note(xid)` is the second line of a node.
 */
export function WaitGraph({ edges, note = (_xid) => "", marked = "" }) {
  if (edges.length === 0) return html`<${Empty}>No transaction waits for another.<//>`;
  const { places, width, height, left } = layered(edges);
  const shown = edges.filter(({ from, to }) => places.has(from) && places.has(to));
  const told = new Set();
  // What a transaction waits for stands once, also if several are before it.
  const isFirst = ({ from, label }) => !told.has(`${from} ${label}`) && told.add(`${from} ${label}`);
  return html`<div class="scroll">
    <div class="graph" style=${{ width: `${width}px`, height: `${height}px` }}>
      <svg width=${width} height=${height} aria-hidden="true">
        <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"
          orient="auto"><path d="M0 0 8 4 0 8z" /></marker></defs>
        ${shown.map((edge) => html`<${Edge} edge=${edge} places=${places}
          isLabelled=${Boolean(isFirst(edge))} key=${`${edge.from} ${edge.to} ${edge.label}`} />`)}
      </svg>
      ${[...places].map(([xid, { x, y }]) => html`
        <a class=${`node ${xid === marked ? "marked" : ""}`} key=${xid} title=${xid}
          href=${transactionLink(xid)} style=${{ left: `${x}px`, top: `${y}px` }}>
          <b>${short(xid)}</b><small title=${note(xid)}>${note(xid)}</small></a>`)}
    </div>
    ${left > 0 && html`<p class="muted">${left} more are not drawn.</p>`}
  </div>`;
}

function Edge({ edge, places, isLabelled }) {
  const { path, x, y } = drawn(places.get(edge.from), places.get(edge.to));
  const kind = `${edge.isHeld === false ? "before" : ""} ${path.includes("V") ? "back" : ""}`;
  return html`<g class=${`edge ${kind}`}><path d=${path} marker-end="url(#tip)" />
    ${isLabelled && html`<text x=${x} y=${y}>${clipped(edge.label)}</text>`}
    <title>${edge.label}</title></g>`;
}

/** The path of an edge, and where its label stands. */
function drawn(from, to) {
  const [x1, y1] = [from.x + WIDTH, from.y + HEIGHT / 2];
  const [x2, y2] = [to.x, to.y + HEIGHT / 2];
  if (x2 < x1) {
    // It closes a cycle: back, around below both.
    const [down, up] = [from.x + WIDTH / 2, to.x + WIDTH / 2];
    const low = Math.max(from.y, to.y) + HEIGHT + BACK;
    const path = `M${down} ${from.y + HEIGHT}V${low - 12}q0 12 ${down > up ? "-12" : "12"} 12H${
      up + (down > up ? 12 : -12)}q${down > up ? "-12" : "12"} 0 ${down > up ? "-12" : "12"} -12V${
      to.y + HEIGHT}`;
    return { path, x: Math.min(down, up) + 24, y: low - 6 };
  }
  const [x, y] = [x1 + 10, y1 - 7];
  if (x2 - x1 <= GAP_X) {
    return { path: `M${x1} ${y1}H${x1 + STUB}C${x1 + STUB + 50} ${y1} ${x2 - 50} ${y2} ${x2} ${y2}`, x, y };
  }
  // It leads past a column: below what stands there.
  const low = y1 + (HEIGHT + GAP_Y) / 2;
  const path = `M${x1} ${y1}C${x1 + 70} ${y1} ${x1 + 70} ${low} ${x1 + STUB} ${low}H${x2 - STUB}C${
    x2 - 50} ${low} ${x2 - 50} ${y2} ${x2} ${y2}`;
  return { path, x, y };
}

const clipped = (text) => (text.length > 18 ? `${text.slice(0, 17)}…` : text);

/** Places nodes: the column is the longest way to one that waits for none. */
export function layered(edges) {
  const targets = new Map();
  for (const { from, to } of edges) {
    if (!targets.has(from)) targets.set(from, new Set());
    if (!targets.has(to)) targets.set(to, new Set());
    targets.get(from).add(to);
  }
  const all = [...targets.keys()];
  const nodes = all.slice(0, NODES_MAX);
  const kept = new Set(nodes);

  // Depth first; a node that is being visited again closes a cycle, and counts for nothing there.
  const depths = new Map();
  const visiting = new Set();
  const depth = (node) => {
    if (depths.has(node)) return depths.get(node);
    visiting.add(node);
    let deepest = 0;
    for (const target of targets.get(node)) {
      if (kept.has(target) && !visiting.has(target)) deepest = Math.max(deepest, depth(target) + 1);
    }
    visiting.delete(node);
    depths.set(node, deepest);
    return deepest;
  };
  const columns = [];
  for (const node of nodes) (columns[depth(node)] ??= []).push(node);

  const places = new Map();
  columns.forEach((column, at) => {
    // Beside those that they wait for.
    const aim = (node) => Math.min(...[...targets.get(node)].map((to) => places.get(to)?.y ?? 0), 1e9);
    column.sort((one, other) => aim(one) - aim(other));
    column.forEach((node, row) => {
      places.set(node, { x: (columns.length - 1 - at) * (WIDTH + GAP_X), y: row * (HEIGHT + GAP_Y) });
    });
  });
  const rows = Math.max(...columns.map((column) => column.length));
  const isCyclic = edges.some(({ from, to }) => depths.get(from) <= depths.get(to));
  return {
    places,
    width: columns.length * (WIDTH + GAP_X) - GAP_X + 8,
    // A way back goes around below.
    height: rows * (HEIGHT + GAP_Y) + (isCyclic ? BACK - GAP_Y + 8 : 0),
    left: all.length - nodes.length,
  };
}
