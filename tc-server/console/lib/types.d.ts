// The messages of the admin API that the console reads: docs/reference/http-api.md has all of them.

export interface Me { name: string; role: "viewer" | "operator"; has_tokens: boolean }

export type Status =
  | "active" | "committing" | "committed" | "rolling_back" | "rolled_back" | "needs_operator";

export interface Transaction {
  xid: string; application: string; name: string; status: Status; rollback_reason?: string;
  paused: boolean; rollback_only: boolean; begun_at: string; age_ms: number; deadline: string;
  finished_at?: string; branch_count: number; labels: Record<string, string>;
}

export interface BulkItem {
  target: string; outcome: "would_change" | "unchanged" | "done" | "refused"; application?: string;
  name?: string; labels?: Record<string, string>; status?: Status; effect?: string; code?: string;
  message?: string;
}

export interface BulkReply {
  action: string; dry_run: boolean; items: BulkItem[]; changes: number; refusals: number;
  confirmation?: string; next?: string;
}

export interface TimelineEntry {
  at: string; what: string; kind: string; branch?: string; ms?: number; by?: string;
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
  rows: { table: string; key: string; canonical_key: string; mode: string }[]; registered_at: string; phase_one_at?: string;
  finished_at?: string; attempts: number; last_failure?: { at: string; error: string };
  refusal?: Refusal; resolution?: string;
}

export interface TransactionDetail extends Transaction {
  branches: Branch[]; timeline: TimelineEntry[]; next: string | null;
  waits: (WaitTarget & { since: string; age_ms: number; deadline: string; behind: string[] })[];
  to_come: { kind: string; at: string | null; branch?: string; what: string }[];
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

/** What is waited for: a row, or a named lock. */
export interface WaitTarget {
  resource?: string; table?: string; key?: string; canonical_key?: string; mode?: string; lock?: string;
}

/** An edge of the drawing: `from` waits for `to`, which holds it or is only before in the queue. */
export interface Wait { from: string; to: string; label: string; isHeld?: boolean }

export type SagaStatus = "running" | "completed" | "compensating" | "compensated" | "needs_operator";

export interface SagaOverview {
  xid: string; key: string; application: string; name: string; status: SagaStatus; cause?: string;
  paused: boolean; begun_at: string; age_ms: number; deadline?: string; ended_at?: string;
  step_count: number; steps_done: number; under_way: string[]; awaits: string[];
  labels: Record<string, string>;
}

export interface SagaStep {
  name: string; within?: string; group: number; kind: string; state: string; branch?: string;
  resource?: string; action?: string; saga?: string; output_of?: string; takes: string[];
  retry?: { base_ms: number; factor: number; cap_ms: number; attempts?: number };
  timeout_ms?: number; times_out_at?: string; started_at?: string; ended_at?: string;
  attempts: number; last_failure?: { at: string; error: string };
  next_attempt?: { state: string; at?: string }; input?: Payload; output?: Payload;
}

export interface Payload { bytes: number; json?: any; text?: string; cut: boolean }

export interface SagaDetail extends SagaOverview { steps: SagaStep[]; timeline: TimelineEntry[] }

export interface OutboxLane {
  lane: number; held: number; new: number; parked: number; oldest_at?: string; age_ms: number;
}

export interface OutboxRelay {
  application: string; outbox: string; relay: string; peer: string; is_silent: boolean;
  seen_ms_ago: number; error?: string; held: number; new: number; parked: number;
  oldest_at?: string; age_ms: number; lane_count: number; lanes: OutboxLane[];
}

export interface ParkedEvent {
  event: string; application: string; outbox: string; topic: string; key: string; reason: string;
  attempts: number; parked_at: string; age_ms: number; emitted_at: string; xid?: string;
}
