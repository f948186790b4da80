//! Wire messages to requests. Sizes are checked here, once; the core relies on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use handfast_core::{
    BranchId, Command, DecidedBy, Decision, DeltaTag, DirtyColumn, DirtyRow, Holding, Label,
    Labels, LentXid, LoanTerms, LockMode, LockWait, Mode, NewBranch, PhaseOneOutcome,
    PhaseTwoOutcome, RefusedRows, ReplyWhen, RowChange, RowLock, RowStanding, VoteRequest,
    VotingRounds, Xid, XidText,
};
use handfast_proto::v1 as wire;

use super::bounds::{BadRequest, at_most, at_most_bytes, cut};
use super::decoder::Decoder;
use crate::dispatch::{Ask, CallReply, NewProcess, RegisteredResource, ResourceKey};

impl Decoder {
    /// A begin over a stream, whose client can be lent XIDs.
    pub(super) fn begin_of_stream(
        &self,
        request: wire::BeginRequest,
    ) -> Result<Command, BadRequest> {
        let lent = match request.lent_xid.as_str() {
            text if text.is_empty() || !request.key.is_empty() => None,
            text => Some(self.lent_xid(text)?),
        };
        let terms = LoanTerms { xid: lent, wants: request.wants };
        let mut command = self.begin(request)?;
        if let Command::Begin { loan, .. } = &mut command {
            *loan = terms;
        }
        Ok(command)
    }

    fn lent_xid(&self, text: &str) -> Result<LentXid, BadRequest> {
        self.name("lent_xid", text)?;
        let XidText { address, xid } = XidText::parse(text)?;
        Ok(LentXid { xid, address: address.into() })
    }

    pub(super) fn begin(&self, request: wire::BeginRequest) -> Result<Command, BadRequest> {
        self.name("application", &request.application)?;
        self.name("name", &request.name)?;
        let timeout_ms = (request.timeout_ms != 0).then_some(request.timeout_ms);
        Ok(Command::Begin {
            application: request.application.into(),
            name: request.name.into(),
            timeout_ms,
            labels: self.labels(request.labels)?,
            key: self.begin_key(request.key)?,
            loan: LoanTerms::default(),
        })
    }

    fn begin_key(&self, key: String) -> Result<Option<Arc<str>>, BadRequest> {
        at_most_bytes("key", key.len(), self.bounds.begin_key_bytes_max)?;
        Ok(Some(key).filter(|key| !key.is_empty()).map(Into::into))
    }

    /// Reads the labels of a global or a saga, of whatever protocol.
    pub(crate) fn labels(&self, labels: BTreeMap<String, String>) -> Result<Labels, BadRequest> {
        at_most("labels", labels.len(), self.bounds.labels_max)?;
        let label = |(name, value): (String, String)| {
            at_most_bytes("label name", name.len(), self.bounds.label_name_bytes_max)?;
            at_most_bytes("label value", value.len(), self.bounds.label_value_bytes_max)?;
            // A list is searched by `name=value`.
            if name.is_empty() || name.contains('=') {
                return Err(BadRequest::LabelName(name));
            }
            Ok(Label::new(name, value))
        };
        labels.into_iter().map(label).collect()
    }

    /// A branch of the process that the request names.
    pub(super) fn register_branch(
        &self,
        request: wire::RegisterBranchRequest,
    ) -> Result<Command, BadRequest> {
        self.name("client_id", &request.client_id)?;
        let registered_by = Some(request.client_id.as_str()).filter(|it| !it.is_empty());
        let registered_by = registered_by.map(Into::into);
        self.register_branch_of(registered_by, request)
    }

    /// A branch of this process, whatever the request says.
    pub(super) fn register_branch_of(
        &self,
        registered_by: Option<Arc<str>>,
        request: wire::RegisterBranchRequest,
    ) -> Result<Command, BadRequest> {
        self.name("resource_id", &request.resource_id)?;
        let data = request.application_data;
        at_most_bytes("application_data", data.len(), self.bounds.application_data_bytes_max)?;
        let branch = NewBranch {
            id: branch_id(request.branch_id)?,
            resource: present("resource_id", request.resource_id)?.into(),
            mode: mode(request.mode)?,
            rows: self.rows(request.rows)?,
            application_data: data.into(),
            registered_by,
        };
        let (wait, xid) = (lock_wait(request.wait)?, self.xid(&request.xid)?);
        let may_be_lost = request.may_be_lost;
        Ok(if request.is_last {
            Command::RegisterLastBranch { xid, branch, wait, may_be_lost }
        } else {
            Command::RegisterBranch { xid, branch, wait }
        })
    }

    /// The registration of a branch whose try is to be called.
    pub(super) fn try_branch(
        &self,
        request: &wire::TryBranchRequest,
    ) -> Result<Command, BadRequest> {
        self.register_branch(wire::RegisterBranchRequest {
            xid: request.xid.clone(),
            branch_id: request.branch_id,
            resource_id: request.resource_id.clone(),
            mode: wire::Mode::Tcc.into(),
            application_data: request.input.clone(),
            ..wire::RegisterBranchRequest::default()
        })
    }

    pub(super) fn report_branch(
        &self,
        request: wire::ReportBranchRequest,
    ) -> Result<Command, BadRequest> {
        let outcome = match wire::PhaseOneOutcome::try_from(request.outcome) {
            Ok(wire::PhaseOneOutcome::Done) => PhaseOneOutcome::Done,
            Ok(wire::PhaseOneOutcome::Failed) => PhaseOneOutcome::Failed,
            Ok(wire::PhaseOneOutcome::Unknown) => PhaseOneOutcome::Unknown,
            Ok(wire::PhaseOneOutcome::Unspecified) | Err(_) => return Err(missing("outcome")),
        };
        let branch = branch_id(request.branch_id)?;
        let (xid, outcome, application_data) =
            (self.xid(&request.xid)?, Some(outcome), Box::default());
        Ok(Command::ReportBranch { xid, branch, outcome, application_data })
    }

    pub(super) fn check_locks(
        &self,
        request: wire::CheckLocksRequest,
    ) -> Result<Command, BadRequest> {
        self.name("resource_id", &request.resource_id)?;
        let xid = match request.xid.as_str() {
            "" => None,
            text => Some(self.xid(text)?),
        };
        let resource = present("resource_id", request.resource_id)?.into();
        let rows = self.rows(request.rows)?;
        Ok(Command::CheckLocks { xid, resource, rows, wait: lock_wait(request.wait)? })
    }

    pub(super) fn report_database_wait(
        &self,
        request: wire::ReportDatabaseWaitRequest,
    ) -> Result<Command, BadRequest> {
        self.name("resource_id", &request.resource_id)?;
        let resource = present("resource_id", request.resource_id)?.into();
        Ok(Command::ReportDatabaseWait { xid: self.xid(&request.xid)?, resource })
    }

    pub(super) fn end(&self, request: wire::EndRequest) -> Result<Command, BadRequest> {
        let reply_when = reply_when(request.reply_when)?;
        Ok(Command::End {
            xid: self.xid(&request.xid)?,
            decision: decision(request.decision)?,
            rounds: rounds(request.can_commit_first),
            by: DecidedBy::Client,
            reason: self.reason(&request.reason).into(),
            reply_when,
        })
    }

    pub(super) fn get_status(
        &self,
        request: &wire::GetStatusRequest,
    ) -> Result<Command, BadRequest> {
        Ok(Command::GetStatus { xid: self.xid(&request.xid)? })
    }

    /// All answers of a message, or what is wrong with the first bad one.
    pub(super) fn answers(
        &self,
        outcome: wire::PhaseTwoOutcome,
    ) -> Result<Vec<CallReply>, BadRequest> {
        outcome.branches.into_iter().map(|branch| self.answer(branch)).collect()
    }

    pub(super) fn process(
        &self,
        hello: &wire::Hello,
        peer: Arc<str>,
    ) -> Result<NewProcess, BadRequest> {
        self.client_id(&hello.client_id)?;
        self.name("application", &hello.application)?;
        self.name("agent", &hello.agent)?;
        Ok(NewProcess {
            client_id: hello.client_id.as_str().into(),
            application: hello.application.as_str().into(),
            agent: hello.agent.as_str().into(),
            peer,
        })
    }

    pub(super) fn client_id(&self, text: &str) -> Result<(), BadRequest> {
        self.name("client_id", text)?;
        if text.is_empty() { Err(missing("client_id")) } else { Ok(()) }
    }

    pub(super) fn resources(
        &self,
        resources: Vec<wire::Resource>,
    ) -> Result<Vec<RegisteredResource>, BadRequest> {
        at_most("resources", resources.len(), self.bounds.resources_max)?;
        resources.into_iter().map(|resource| self.resource(resource)).collect()
    }

    fn resource(&self, resource: wire::Resource) -> Result<RegisteredResource, BadRequest> {
        self.name("resource id", &resource.id)?;
        self.name("resource label", &resource.label)?;
        let id = present("resource id", resource.id)?.into();
        let key = ResourceKey { id, mode: mode(resource.mode)? };
        Ok(RegisteredResource { key, label: Some(resource.label.into()) })
    }

    fn answer(&self, branch: wire::BranchOutcome) -> Result<CallReply, BadRequest> {
        use wire::branch_outcome::Result::{Done, Given, Refused, Retryable};
        let outcome = match branch.result {
            Some(Done(_)) => PhaseTwoOutcome::Done,
            Some(Given(wire::Given { output })) => {
                at_most_bytes("output", output.len(), self.bounds.application_data_bytes_max)?;
                PhaseTwoOutcome::Output { output: output.into() }
            }
            Some(Retryable(retryable)) => {
                PhaseTwoOutcome::Retryable { error: self.reason(&retryable.error).into() }
            }
            Some(Refused(refused)) => PhaseTwoOutcome::Refused {
                error: self.reason(&refused.error).into(),
                rows: self.refused_rows(refused).into(),
            },
            None => return Err(missing("result")),
        };
        Ok(CallReply {
            xid: self.xid(&branch.xid)?,
            branch: branch_id(branch.branch_id)?,
            ask: ask(branch.question, branch.decision)?,
            outcome,
        })
    }

    /// The counts cover all rows of the branch, even if the list is cut, and no rows of other
    /// branches that are listed beside them. A client that sends no counts lists only dirty rows.
    fn refused_rows(&self, refused: wire::Refused) -> RefusedRows {
        let listed = refused.rows.len() as u64;
        let (total, dirty) = match refused.rows_total {
            0 => (listed, listed),
            total => (total, refused.rows_dirty),
        };
        let kept = refused.rows.into_iter().take(self.bounds.dirty_rows_max);
        RefusedRows {
            listed: kept.map(|row| self.dirty_row(row)).collect(),
            total,
            dirty,
            held_events: refused.held_events,
        }
    }

    fn dirty_row(&self, row: wire::DirtyRow) -> DirtyRow {
        DirtyRow {
            standing: standing(row.standing()),
            on_restore_clean: change(row.on_restore_clean()),
            on_force_before: change(row.on_force_before()),
            table: cut(&row.table, self.bounds.name_bytes_max).to_owned(),
            key: cut(&row.key, self.bounds.name_bytes_max).to_owned(),
            columns: row.columns.into_iter().map(|column| self.dirty_column(column)).collect(),
        }
    }

    fn dirty_column(&self, column: wire::DirtyColumn) -> DirtyColumn {
        let value = |text: Option<String>| {
            text.map(|text| cut(&text, self.bounds.dirty_value_bytes_max).to_owned())
        };
        DirtyColumn {
            name: cut(&column.name, self.bounds.name_bytes_max).to_owned(),
            before: value(column.before),
            after: value(column.after),
            current: value(column.current),
        }
    }

    fn rows(&self, tables: Vec<wire::RowKeys>) -> Result<Vec<RowLock>, BadRequest> {
        let count = tables.iter().map(|table| table.keys.len()).sum();
        at_most("rows", count, self.bounds.rows_max)?;
        let mut rows = Vec::with_capacity(count);
        for table in tables {
            self.name("table", &table.table)?;
            let mode = lock_mode(table.mode, table.delta_tag)?;
            let name: Arc<str> = table.table.into();
            for key in table.keys {
                at_most_bytes("row key", key.len(), self.bounds.key_bytes_max)?;
                rows.push(RowLock { table: Arc::clone(&name), key: key.into(), mode });
            }
        }
        Ok(rows)
    }

    pub(super) fn xid(&self, text: &str) -> Result<Xid, BadRequest> {
        self.name("xid", text)?;
        Ok(XidText::parse(text)?.xid)
    }
}

fn standing(standing: wire::RowStanding) -> RowStanding {
    match standing {
        wire::RowStanding::Dirty => RowStanding::Dirty,
        wire::RowStanding::Clean => RowStanding::Clean,
        wire::RowStanding::Restored => RowStanding::Restored,
    }
}

fn change(change: wire::RowChange) -> Option<RowChange> {
    match change {
        wire::RowChange::Unspecified => None,
        wire::RowChange::Left => Some(RowChange::Left),
        wire::RowChange::WrittenBack => Some(RowChange::WrittenBack),
        wire::RowChange::Removed => Some(RowChange::Removed),
        wire::RowChange::Inserted => Some(RowChange::Inserted),
    }
}

fn branch_id(number: u64) -> Result<BranchId, BadRequest> {
    if number == 0 || i64::try_from(number).is_err() {
        return Err(BadRequest::BranchId(number));
    }
    Ok(BranchId(number))
}

fn mode(number: i32) -> Result<Mode, BadRequest> {
    match wire::Mode::try_from(number) {
        Ok(wire::Mode::At) => Ok(Mode::At),
        Ok(wire::Mode::Tcc) => Ok(Mode::Tcc),
        Ok(wire::Mode::Xa) => Ok(Mode::Xa),
        Ok(wire::Mode::Saga) => Ok(Mode::Saga),
        Ok(wire::Mode::TwoPhase) => Ok(Mode::TwoPhase),
        Ok(wire::Mode::Unspecified) | Err(_) => Err(missing("mode")),
    }
}

fn lock_mode(number: i32, delta_tag: u64) -> Result<LockMode, BadRequest> {
    match wire::LockMode::try_from(number) {
        Ok(wire::LockMode::Exclusive) => Ok(LockMode::Exclusive),
        Ok(wire::LockMode::Shared) => Ok(LockMode::Shared),
        // Changes of different kinds would commute with each other.
        Ok(wire::LockMode::Delta) if delta_tag == 0 => Err(missing("delta tag")),
        Ok(wire::LockMode::Delta) => Ok(LockMode::Delta(DeltaTag::new(delta_tag))),
        Err(_) => Err(missing("lock mode")),
    }
}

fn rounds(can_commit_first: bool) -> VotingRounds {
    if can_commit_first { VotingRounds::CanCommitFirst } else { VotingRounds::PrepareOnly }
}

fn ask(question: i32, decision_number: i32) -> Result<Ask, BadRequest> {
    match wire::Question::try_from(question) {
        Ok(wire::Question::None) => decision(decision_number).map(Ask::Finish),
        Ok(wire::Question::CanCommit) => Ok(Ask::Vote(VoteRequest::CanCommit)),
        Ok(wire::Question::Prepare) => Ok(Ask::Vote(VoteRequest::Prepare)),
        Ok(wire::Question::Settle) => Ok(Ask::Vote(VoteRequest::Settle)),
        Err(_) => Err(missing("question")),
    }
}

fn decision(number: i32) -> Result<Decision, BadRequest> {
    match wire::Decision::try_from(number) {
        Ok(wire::Decision::Commit) => Ok(Decision::Commit),
        Ok(wire::Decision::RollBack) => Ok(Decision::RollBack),
        Ok(wire::Decision::Unspecified) | Err(_) => Err(missing("decision")),
    }
}

pub(super) fn reply_when(number: i32) -> Result<ReplyWhen, BadRequest> {
    match wire::ReplyWhen::try_from(number) {
        Ok(wire::ReplyWhen::Decided) => Ok(ReplyWhen::Decided),
        Ok(wire::ReplyWhen::Finished) => Ok(ReplyWhen::Finished),
        Err(_) => Err(missing("reply_when")),
    }
}

fn lock_wait(wait: Option<wire::LockWait>) -> Result<LockWait, BadRequest> {
    let wait = wait.unwrap_or_default();
    let holding = match wire::Holding::try_from(wait.holding) {
        Ok(wire::Holding::DatabaseLocks) => Holding::DatabaseLocks,
        Ok(wire::Holding::Nothing) => Holding::Nothing,
        Err(_) => return Err(missing("holding")),
    };
    Ok(LockWait { timeout_ms: wait.timeout_ms, holding })
}

pub(super) fn present(field: &'static str, text: String) -> Result<String, BadRequest> {
    if text.is_empty() { Err(missing(field)) } else { Ok(text) }
}

pub(super) fn missing(field: &'static str) -> BadRequest {
    BadRequest::Missing { field }
}
