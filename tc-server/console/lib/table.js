// A table of any length: only the rows in sight are in the page. Rows have one height.
import { useEffect, useLayoutEffect, useRef, useState } from "../vendor/hooks.js";
import { asList } from "./keys.js";
import { Empty, html } from "./parts.js";

/** The height of a row, as in style.css. */
const ROW = 40;
/** Rows drawn above and below those in sight. */
const SPARE = 8;
/** @type {{ current: any[] } | null} */
const NO_SIGHT = null;

/**
 * `columns`: `{ head, cell(row), grow, basis, hide }`. `grow` and `basis` share the width out;
 * `hide` is the width of page in rem below which the column is left out: 40, 60 or 80.
 * `chosen`: a signal with the set of keys that are selected, if rows can be.
 * `more`: called when the end comes in sight, if there are more rows to be had.
 * `sight`: a ref that is given the rows in sight, if they are to be kept up to date.
 */
export function Table(
  { columns, rows, keyOf, open, label, more, chosen, sight = NO_SIGHT, none = "Nothing here." }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [{ top, height }, setSight] = useState({ top: 0, height: 600 });
  // By its key: a live list moves below the row that keys are at.
  const [atKey, setAtKey] = useState(null);
  const at = rows.findIndex((row) => keyOf(row) === atKey);

  const look = () => {
    const seen = box.current;
    if (seen) setSight({ top: seen.scrollTop, height: seen.clientHeight });
  };
  useLayoutEffect(look, [rows.length]);
  useEffect(() => {
    addEventListener("resize", look);
    return () => removeEventListener("resize", look);
  }, []);

  const first = Math.max(0, Math.floor(top / ROW) - SPARE);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW) + SPARE);
  useEffect(() => {
    if (more && last >= rows.length) more();
  }, [more, last, rows.length]);
  if (sight) sight.current = rows.slice(first, last);

  const select = (row) => {
    const set = new Set(chosen.value);
    if (!set.delete(keyOf(row))) set.add(keyOf(row));
    chosen.value = set;
  };
  // Before the next key: one that is pressed quickly would move in the list as it was.
  useLayoutEffect(() =>
    asList({
      move(by) {
        const next = Math.min(rows.length - 1, Math.max(0, at + by));
        if (rows[next]) setAtKey(keyOf(rows[next]));
        const seen = box.current;
        if (!seen) return true;
        if (next * ROW < seen.scrollTop) seen.scrollTop = next * ROW;
        const below = (next + 1) * ROW - seen.clientHeight;
        if (below > seen.scrollTop) seen.scrollTop = below;
        return true;
      },
      open: () => rows[at] && open && (open(rows[at]), true),
      select: () => rows[at] && chosen && (select(rows[at]), true),
    }),
  );

  if (rows.length === 0) return html`<${Empty}>${none}<//>`;
  const click = (event, row) => {
    if (event.target.closest("a, button, input")) return;
    setAtKey(keyOf(row));
    open?.(row);
  };
  const cells = (row) =>
    columns.map((column) => html`<div role="cell" key=${column.head} ...${place(column)}>
      ${column.cell(row)}</div>`);
  return html`<div class="table" role="table" aria-label=${label} aria-rowcount=${rows.length}>
    <div class="head" role="row">
      ${chosen && html`<div role="columnheader" class="check"></div>`}
      ${columns.map((column) => html`<div role="columnheader" key=${column.head}
        ...${place({ ...column, kind: column.kind === "id" ? "" : column.kind })}>
        ${column.head}</div>`)}
    </div>
    <div class="rows" ref=${box} onScroll=${look} tabindex="-1">
      <div class="room" style=${{ height: `${rows.length * ROW}px` }}>
        ${rows.slice(first, last).map((row, index) => html`
          <div role="row" key=${keyOf(row)} aria-rowindex=${first + index + 1}
            class=${`row ${first + index === at ? "at" : ""} ${open ? "opens" : ""}`}
            style=${{ top: `${(first + index) * ROW}px` }}
            onClick=${(event) => click(event, row)}>
            ${chosen && html`<div role="cell" class="check"><input type="checkbox"
              aria-label="select" checked=${chosen.value.has(keyOf(row))}
              onChange=${() => select(row)} /></div>`}
            ${cells(row)}
          </div>`)}
      </div>
    </div>
  </div>`;
}

const place = ({ grow = 1, basis = 6, hide = 0, kind = "" }) => ({
  class: `cell ${kind} ${hide ? `hide${hide}` : ""}`,
  style: { flex: `${grow} 1 ${basis}rem` },
});
