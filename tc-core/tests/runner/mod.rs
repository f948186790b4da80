//! The runner of the scripts: names, a clock, a store, and a coordinator.
//!
//! Commands that are requests are parsed in `request`; what leaves the coordinator is put into
//! words in `text`. The remaining commands look at the state or replace it.

mod lease;
mod preview;
mod request;
mod saga;
mod text;
mod waits;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

use goldenscript::{ArgumentConsumer, Command as ScriptLine, Context};
use handfast_core::{
    Asker, Change, ClientId, Command, Coordinator, Correlation, Effect, GlobalFilter, Limits,
    ListOrder, LockFilter, Outcome, PageBounds, Reply, Request, Timestamp, Xid, XidLoan,
};

use crate::support::{Store, recorded};

type Fallible<T> = Result<T, Box<dyn Error>>;

pub(crate) struct ScriptRunner {
    limits: Limits,
    epoch: u64,
    now: Timestamp,
    /// The sender of what follows; 0 for none.
    client: ClientId,
    coordinator: Coordinator,
    store: Store,
    /// Changes since the script last looked.
    changes: Vec<Change>,
    names: Names,
}

/// The names that the script gives to globals and requests.
#[derive(Default)]
struct Names {
    xids: BTreeMap<String, Xid>,
    requests: BTreeMap<Correlation, String>,
}

impl ScriptRunner {
    pub(crate) fn new() -> Self {
        let (limits, store) = (Limits::default(), Store::default());
        let coordinator = store.load(1, &limits).expect("no records do not contradict");
        let (now, changes, names) = (Timestamp(0), Vec::new(), Names::default());
        let client = ClientId::default();
        Self { limits, epoch: 1, now, client, coordinator, store, changes, names }
    }

    /// Asks the coordinator and tells what leaves it.
    fn ask(&mut self, name: &str, command: Command) -> Fallible<String> {
        let correlation = self.names.add_request(name);
        let is_answered = !matches!(
            command,
            Command::Tick
                | Command::Forget { .. }
                | Command::FinishPhaseTwo { .. }
                | Command::Vote { .. }
        );
        let request = Request { reply_to: is_answered.then_some(correlation), command };
        let mut out = Outcome::default();
        let previewed = preview::of(&self.coordinator, &request.command);
        let asker = Asker { client: self.client, application: "".into() };
        self.coordinator.decide_for(asker, self.now, request, &mut out);
        out.check_early_replies()?;
        preview::check(previewed, &out)?;
        self.store.apply(&out.changes);
        self.changes.append(&mut out.changes);
        self.names.learn(name, &out.effects);
        let is_reply =
            |effect: &Effect| matches!(effect, Effect::Reply { to, .. } if *to == correlation);
        let mut told = String::new();
        if is_answered && !out.effects.iter().any(is_reply) {
            writeln!(told, "{name} waits")?;
        }
        told.push_str(&self.names.tell(&out.effects));
        Ok(told)
    }

    fn look(&mut self, command: &ScriptLine) -> Fallible<String> {
        let mut arguments = command.consume_args();
        let told = match command.name.as_str() {
            "client" => {
                self.client = ClientId(arguments.next_pos().ok_or("which client?")?.parse()?);
                String::new()
            }
            "at" => {
                self.now = Timestamp(arguments.next_pos().ok_or("at what time?")?.parse()?);
                String::new()
            }
            "tick" => {
                let now = arguments.next_pos().map(str::parse).transpose()?;
                self.now = now.map_or(self.now, Timestamp);
                self.ask("tick", Command::Tick)?
            }
            "deadline" => match self.coordinator.next_deadline() {
                Some(Timestamp(at)) => format!("at {at}\n"),
                None => "none\n".to_owned(),
            },
            "show" => self.show(arguments.next_pos().ok_or("show what?")?),
            "globals" => self.list_globals(&mut arguments)?,
            "locks" => self.list_locks(&mut arguments)?,
            "graph" => self.names.put_in(&waits::graph(&self.coordinator, &mut arguments)?),
            "queue" => self.names.put_in(&waits::queue(&self.coordinator, &mut arguments)?),
            "deadlocks" => self.names.put_in(&waits::deadlocks(&self.coordinator)),
            "sagas" => self.list_sagas(&mut arguments)?,
            "timeouts" => {
                let name = arguments.next_pos().ok_or("of which saga?")?;
                let saga = self.coordinator.saga_view(self.names.xid(name));
                saga.map_or("unknown\n".to_owned(), |saga| saga::timeouts(&saga))
            }
            "named" => self.names.put_in(&lease::list(&self.coordinator, self.now)),
            "alerts" => {
                let alerts = self.coordinator.alerts();
                self.names.put_in(&alerts.map(|it| text::alert(&it) + "\n").collect::<String>())
            }
            "counts" => text::counts(self.coordinator.counts()),
            "changes" => {
                let changes = std::mem::take(&mut self.changes);
                self.names.put_in(&changes.iter().map(text::change).collect::<String>())
            }
            "owed" => {
                let mut out = Outcome::default();
                self.coordinator.owed(&mut out);
                self.names.tell(&out.effects)
            }
            "reload" => self.reload()?,
            "limits" => self.set_limits(&mut arguments)?,
            unknown => return Err(format!("no such command: {unknown}").into()),
        };
        arguments.reject_next()?;
        Ok(told)
    }

    fn reload(&mut self) -> Fallible<String> {
        self.epoch += 1;
        self.coordinator = self.store.load(self.epoch, &self.limits)?;
        Ok(format!("loaded {} records\n", self.store.records.len()))
    }

    /// Sets limits, which a server reads when it starts.
    fn set_limits(&mut self, arguments: &mut ArgumentConsumer<'_>) -> Fallible<String> {
        while let Some((name, value)) = arguments.next_key() {
            request::set_limit(&mut self.limits, name, value.parse()?)?;
        }
        self.reload()
    }

    fn show(&self, name: &str) -> String {
        if let Some(saga) = self.coordinator.saga(self.names.xid(name)) {
            return self.names.put_in(&saga::show(saga));
        }
        let shown = self.coordinator.global(self.names.xid(name));
        shown.map_or("unknown\n".to_owned(), |shown| self.names.put_in(&text::global(&shown)))
    }

    fn list_globals(&self, arguments: &mut ArgumentConsumer<'_>) -> Fallible<String> {
        let mut text_of = |name| arguments.take_key(name).map(str::to_owned);
        let status = text_of("status").map(|name| request::status_kind(&name)).transpose()?;
        let filter = GlobalFilter {
            status,
            application: text_of("application"),
            name: text_of("name"),
            begun_before: text_of("begun_before")
                .map(|at| at.parse().map(Timestamp))
                .transpose()?,
            begun_from: text_of("begun_from").map(|at| at.parse().map(Timestamp)).transpose()?,
            label: text_of("label").map(|label| request::label(&label)).transpose()?,
            resource: text_of("resource"),
            table: text_of("table"),
            text: text_of("text"),
            order: match text_of("order").as_deref() {
                Some("oldest") => ListOrder::OldestFirst,
                Some(_) | None => ListOrder::NewestFirst,
            },
            is_unfinished: text_of("unfinished").is_some(),
        };
        let after = text_of("after").map(|name| self.names.xid(&name));
        let limit = text_of("limit").map_or(Ok(100), |limit| limit.parse())?;
        let bounds = PageBounds { items_max: limit, ..PageBounds::NONE };
        let globals = self.coordinator.globals(&filter, after, bounds).items;
        Ok(globals.iter().map(|global| self.names.put_in(&text::summary(global))).collect())
    }

    fn list_sagas(&self, arguments: &mut ArgumentConsumer<'_>) -> Fallible<String> {
        let filter = saga::filter(arguments)?;
        let page_size = arguments.take_key("page").map_or(Ok(100), str::parse)?;
        let (mut told, mut before) = (String::new(), None);
        loop {
            // Page by page, to see that the pages fit together.
            let bounds = PageBounds { items_max: page_size, ..PageBounds::NONE };
            let page = self.coordinator.saga_page(&filter, before, bounds);
            told.extend(page.items.iter().map(|it| self.names.put_in(&saga::summary(it))));
            before = page.next;
            if before.is_none() {
                return Ok(told);
            }
        }
    }

    fn list_locks(&self, arguments: &mut ArgumentConsumer<'_>) -> Fallible<String> {
        let mut text_of = |name| arguments.take_key(name).map(str::to_owned);
        let filter = LockFilter {
            resource: text_of("resource"),
            table: text_of("table"),
            key: text_of("key").map(|key| request::canonical(&key)),
            holder: text_of("holder").map(|name| self.names.xid(&name)),
        };
        let page_size = text_of("page").map_or(Ok(100), |size| size.parse())?;
        let (mut told, mut after) = (String::new(), None);
        loop {
            // Page by page, to see that the pages fit together.
            let bounds = PageBounds { items_max: page_size, ..PageBounds::NONE };
            let page = self.coordinator.locks(&filter, after, bounds);
            told.extend(page.items.iter().map(|lock| self.names.put_in(&text::lock(lock))));
            after = page.next;
            if after.is_none() {
                return Ok(told);
            }
        }
    }
}

impl Names {
    fn add_request(&mut self, name: &str) -> Correlation {
        let last = self.requests.last_key_value().map_or(0, |(correlation, _)| correlation.0);
        self.requests.insert(Correlation(last + 1), name.to_owned());
        Correlation(last + 1)
    }

    /// Remembers the global that has just been begun under a name.
    fn learn(&mut self, name: &str, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Reply { reply: Reply::Begun { xid, loan, .. }, .. } => {
                    self.xids.insert(name.to_owned(), *xid);
                    self.learn_lent(name, *loan);
                }
                Effect::Reply { reply: Reply::Saga(saga), .. } if self.xid(name) == Xid(0) => {
                    self.xids.insert(name.to_owned(), saga.xid);
                }
                Effect::Reply { .. }
                | Effect::PhaseTwo(_)
                | Effect::Vote(_)
                | Effect::Hold { .. }
                | Effect::Alert(_) => {}
            }
        }
    }

    /// The first XID that was lent with the begin of `x1` is called `x1.1`, and so on.
    fn learn_lent(&mut self, name: &str, loan: Option<XidLoan>) {
        let Some(XidLoan { first, count, .. }) = loan else { return };
        for (number, xid) in (first.0..first.0 + u64::from(count)).enumerate() {
            self.xids.insert(format!("{name}.{}", number + 1), Xid(xid));
        }
    }

    /// A name that the script has not begun is a global that never was.
    fn xid(&self, name: &str) -> Xid {
        self.xids.get(name).copied().unwrap_or(Xid(0))
    }

    fn request(&self, name: &str) -> Option<Correlation> {
        let mut latest_first = self.requests.iter().rev();
        latest_first.find(|(_, known)| *known == name).map(|(correlation, _)| *correlation)
    }

    /// Puts names in place of XIDs.
    fn put_in(&self, told: &str) -> String {
        self.xids
            .iter()
            .fold(told.to_owned(), |told, (name, xid)| told.replace(&xid.to_string(), name))
    }

    fn tell(&self, effects: &[Effect]) -> String {
        let lines = effects.iter().map(|effect| match effect {
            Effect::Reply { to, reply, .. } => {
                let name = self.requests.get(to).map_or("none", String::as_str);
                format!("{name} {}\n", text::reply(reply))
            }
            Effect::PhaseTwo(call) => format!("call {}\n", text::call(call)),
            Effect::Vote(call) => format!("ask {}\n", text::vote_call(call)),
            Effect::Hold { xid, branch: None } => format!("hold {xid}\n"),
            Effect::Hold { xid, branch: Some(branch) } => format!("hold {xid}/{branch}\n"),
            Effect::Alert(alert) => format!("warn: {}\n", text::alert(alert)),
        });
        self.put_in(&lines.collect::<String>())
    }
}

impl goldenscript::Runner for ScriptRunner {
    type Command = ScriptLine;

    fn run(&mut self, command: &ScriptLine, _context: &Context) -> Fallible<String> {
        if let Some((name, command)) = lease::parse(&self.names, command)? {
            return self.ask(&name, command);
        }
        match request::parse(&self.names, &self.coordinator, command)? {
            Some((name, command)) => self.ask(&name, command),
            None => self.look(command),
        }
    }

    fn end_command(&mut self, _command: &ScriptLine, _context: &Context) -> Fallible<String> {
        self.coordinator.check_invariants()?;
        let loaded = self.store.load(self.epoch + 1, &self.limits)?;
        loaded.check_invariants()?;
        assert_eq!(recorded(&self.coordinator), recorded(&loaded), "RECORDED");
        Ok(String::new())
    }
}
