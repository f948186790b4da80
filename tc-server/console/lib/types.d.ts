// The messages of the admin API that the console reads: docs/reference/http-api.md has all of them.

export interface Me { name: string; role: "viewer" | "operator"; has_tokens: boolean }

export type Status =
  | "active" | "committing" | "committed" | "rolling_back" | "rolled_back" | "needs_operator";

export interface Transaction {
  xid: string; application: string; name: string; status: Status; rollback_reason?: string;
  paused: boolean; rollback_only: boolean; begun_at: string; age_ms: number; deadline: string;
  finished_at?: string; branch_count: number; labels?: Record<string, string>;
}

export interface TimelineEntry {
  at: string; what: string; kind?: string; branch?: string; ms?: number; by?: string;
}

export interface DirtyColumn {
  name: string; before: string | null; after: string | null; current: string | null;
}

export type RowChange = "left" | "written_back" | "removed" | "inserted";

export interface DirtyRow {
  table: string; key: string; columns: DirtyColumn[]; standing: "dirty" | "clean" | "restored";
  on_restore_clean: RowChange | null; on_accept_current: RowChange; on_force_before: RowChange | null;
}

export interface Refusal {
  error: string; rows: DirtyRow[]; rows_total: number; rows_dirty: number;
  events?: { held: number; on_restore_clean: string; on_accept_current: string; on_force_before: string };
}

export interface Branch {
  id: string; resource: string; mode: string; state: string; row_count: number;
  rows: { table: string; key: string; mode: string }[]; registered_at: string; phase_one_at?: string;
  finished_at?: string; attempts: number; last_failure?: { at: string; error: string };
  refusal?: Refusal; resolution?: string;
}

export interface TransactionDetail extends Transaction {
  branches: Branch[]; timeline: TimelineEntry[]; next: string | null;
  waits?: { table: string; key: string; since: string; age_ms: number; behind: string[] }[];
  to_come?: { kind: string; at: string | null; branch?: string; what: string }[];
}

export interface Lock {
  resource: string; table: string; key: string; canonical_key: string; holding: number;
  waiting: number; holders: { xid: string; mode: string; since: string; age_ms: number }[];
  queue: { xid: string | null; mode: string; since: string; age_ms: number }[];
}

export interface Timing { count: number; p50_us: number; p99_us: number }

export interface RecentStep {
  at: string; committed: number; rolled_back: number; active?: number; waiting?: number;
  pending?: number; needs_operator?: number; begin?: Timing; register?: Timing; commit?: Timing;
  phase_two?: Timing; lock_wait?: Timing; store_commit?: Timing;
}

/** An edge of the wait-for graph: `from` waits for `to`. */
export interface Wait { from: string; to: string; label: string; since?: string }
