//! Messages about sagas.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Failure, TimelineEntry};

/// The status of a saga.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum SagaStanding {
    /// Going forward.
    Running,
    /// Every step is done.
    Completed,
    /// Going back.
    Compensating,
    /// Every step is compensated.
    Compensated,
    /// A step cannot go on, in its direction, without an operator.
    NeedsOperator,
}

/// Selects the sagas to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SagaQuery {
    /// Only those with this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub status: Option<SagaStanding>,
    /// Only those that this application started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Only those of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only the one with this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Only those that wait for this signal, such as `approval` or `billing/approval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<String>,
    /// Only those with this label, as `name=value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Only those begun longer ago, such as `30s`, `5m` or `2h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than: Option<String>,
    /// The `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The most items on the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Selects what to show of a saga.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OneSagaQuery {
    /// Only this step, such as `reserve` or `billing/charge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The most bytes shown of each input and output: by default 1,024, at most 65,536. All of one
    /// answer together have at most 1,048,576.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<usize>,
}

/// A saga.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SagaOverview {
    /// Its id, `{address}:{number}`.
    pub xid: String,
    /// Its key: the same key is the same saga.
    pub key: String,
    /// The application that started it.
    pub application: String,
    /// The application's name for this kind of saga.
    pub name: String,
    /// Its status.
    pub status: SagaStanding,
    /// Why it is or was compensated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// An operator has paused its calls.
    pub paused: bool,
    /// When it began.
    pub begun_at: String,
    /// Time since it began.
    pub age_ms: u64,
    /// When it is compensated unless its pivot has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// The number of its steps, with those of its child sagas.
    pub step_count: usize,
    /// The number of steps that are done, and not to be compensated so far.
    pub steps_done: usize,
    /// The steps whose action or compensation is due, at most 10.
    pub under_way: Vec<String>,
    /// The signals that it waits for, at most 10.
    pub awaits: Vec<String>,
    /// Names and values that the application calls it by.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// One page of sagas, youngest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SagaPage {
    /// At most `limit` items; perhaps none, although the list continues.
    pub items: Vec<SagaOverview>,
    /// The `cursor` of the following page, if there may be one.
    pub next: Option<String>,
}

/// A saga in detail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SagaDetail {
    /// The saga.
    #[serde(flatten)]
    pub saga: SagaOverview,
    /// Its steps in their order, a child saga before its own.
    pub steps: Vec<SagaStep>,
    /// Its events, oldest first.
    pub timeline: Vec<TimelineEntry>,
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SagaStepKind {
    /// Its compensation undoes its action.
    Compensable,
    /// Nothing of it needs to be compensated.
    Harmless,
    /// The point of no return.
    Pivot,
    /// Comes after the pivot and is tried until it is done.
    Retriable,
    /// Waits for a signal.
    Signal,
    /// A saga of its own.
    Child,
}

/// The state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SagaStepState {
    /// Not begun.
    Waiting,
    /// Its action is due, or its signal awaited.
    Running,
    /// Its action cannot go on without an operator.
    RunningStuck,
    /// Its action is done.
    Done,
    /// Its action refused or was given up.
    Failed,
    /// Its compensation is due.
    Compensating,
    /// Its compensation cannot go on without an operator.
    CompensatingStuck,
    /// It is compensated.
    Compensated,
}

/// A step of a saga.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SagaStep {
    /// Its name behind those of the child sagas that it is in, such as `billing/charge`.
    pub name: String,
    /// The child saga that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// Its group in its saga or child saga, from 0. The steps of one group run side by side.
    pub group: u32,
    /// Its kind.
    pub kind: SagaStepKind,
    /// Its state; that of a child saga stands for all its steps.
    pub state: SagaStepState,
    /// The branch by which the step is resolved; none for a child saga.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The resource that carries it out; none for a signal and a child saga.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The action that the resource is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The name of a child saga.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saga: Option<String>,
    /// The step that gives a child saga's output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_of: Option<String>,
    /// The steps whose outputs it takes.
    pub takes: Vec<String>,
    /// The rhythm of attempts; none for a signal and a child saga.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<SagaRetry>,
    /// How long it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// When it has taken too long, while that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times_out_at: Option<String>,
    /// When its action was first due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it was done or, after that, compensated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Attempts that failed: of the action or, once that is due, of the compensation.
    pub attempts: u32,
    /// The last failed attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,
    /// Where its next attempt stands, if one is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<NextAttempt>,
    /// The input of its action and compensation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Payload>,
    /// The output of its action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Payload>,
}

/// The rhythm in which an action is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SagaRetry {
    /// The pause after the first failed attempt.
    pub base_ms: u64,
    /// The factor by which each further pause is longer.
    pub factor: u32,
    /// The longest pause.
    pub cap_ms: u64,
    /// After this many failed attempts the action is given up; none: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
}

/// Where the next attempt of a step stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NextAttempt {
    /// Where it stands.
    pub state: NextAttemptState,
    /// When a delayed attempt is made, or when a process that was asked counts as silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// Where a next attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NextAttemptState {
    /// A process was asked and has not answered.
    Asked,
    /// It is made at once, or at the time that is given.
    Due,
    /// No connected process serves the resource.
    WaitsForProcess,
    /// An operator has paused the saga.
    Paused,
}

/// An input or output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Payload {
    /// Its whole length.
    pub bytes: usize,
    /// The value, if it is JSON and is shown whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub json: Option<serde_json::Value>,
    /// Its text otherwise, from the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Not all of it is shown.
    pub cut: bool,
}

/// The start of a saga.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartSagaRequest {
    /// Its key: if a saga has it, and the same definition, it is that saga.
    pub key: String,
    /// The application in whose name it is started.
    #[serde(default = "operators")]
    pub application: String,
    /// The definition, in the form of docs/saga.md.
    #[schema(value_type = Object)]
    pub saga: serde_json::Value,
    /// Names and values that it is called by: at most 16, names of at most 64 bytes without `=`,
    /// values of at most 256 bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// For the audit log; at most 1,024 bytes are kept.
    #[serde(default)]
    pub reason: String,
}

fn operators() -> String {
    "operator".to_owned()
}

/// A signal for a step that waits for one, or will.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// The step, such as `approval` or `billing/approval`.
    pub signal: String,
    /// The step's output: any JSON.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub payload: serde_json::Value,
    /// For the timeline and the audit log; at most 1,024 bytes are kept.
    #[serde(default)]
    pub reason: String,
}

/// The answer to an action on a saga that was executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SagaReply {
    /// The saga.
    pub xid: String,
    /// Its key.
    pub key: String,
    /// Its status after the action.
    pub status: SagaStanding,
}
