//! Checks of a configuration beyond the types of its fields.

use std::net::SocketAddr;
use std::path::Path;

use tokio::sync::Semaphore;
use tracing_subscriber::EnvFilter;

use super::{Config, HttpParticipant, Problem, Source, StoreKind};
use crate::over_http::{Prefix, Secret};

/// The smallest segment, with room for batches of usual size.
const SEGMENT_BYTES_MIN: u64 = 16 << 10;

/// The shortest lease, in milliseconds: a renewal is a round trip to the store.
const LEASE_MS_MIN: u64 = 300;

impl Config {
    /// Returns every problem of the configuration as a whole.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut messages = Vec::new();
        self.check_positive(&mut messages);
        self.check_order(&mut messages);
        self.check_http(&mut messages);
        self.webhook.check(&mut messages);
        self.telemetry.check(&mut messages);
        self.check_tls(&mut messages);
        self.check_exposure(&mut messages);
        self.check_address(&mut messages);
        self.check_cluster(&mut messages);
        self.check_text(&mut messages);
        messages.into_iter().map(|message| Problem { source: Source::Whole, message }).collect()
    }

    fn check_positive(&self, messages: &mut Vec<String>) {
        let limits = &self.limits;
        let dispatch = &self.dispatch;
        let as_u64 = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
        let positive = [
            ("grpc.message_bytes_max", as_u64(self.grpc.message_bytes_max)),
            ("grpc.queue_messages_max", as_u64(self.grpc.queue_messages_max)),
            ("grpc.connections_max", as_u64(self.grpc.connections_max)),
            ("grpc.silence_timeout_ms", self.grpc.silence_timeout_ms),
            ("admin.connections_max", as_u64(self.admin.connections_max)),
            ("admin.silence_timeout_ms", self.admin.silence_timeout_ms),
            ("admin.request_timeout_ms", self.admin.request_timeout_ms),
            ("admin.body_bytes_max", as_u64(self.admin.body_bytes_max)),
            ("admin.page_items_max", as_u64(self.admin.page_items_max)),
            ("admin.views_max", as_u64(self.admin.views_max)),
            ("admin.live_max", as_u64(self.admin.live_max)),
            ("admin.scan_records_max", as_u64(self.admin.scan_records_max)),
            ("seata.connections_max", as_u64(self.seata.connections_max)),
            ("seata.silence_timeout_ms", self.seata.silence_timeout_ms),
            ("seata.frame_bytes_max", as_u64(self.seata.frame_bytes_max)),
            ("seata.requests_max", as_u64(self.seata.requests_max)),
            ("seata.queue_frames_max", as_u64(self.seata.queue_frames_max)),
            ("seata.undo_log_save_days", u64::from(self.seata.undo_log_save_days)),
            ("limits.timeout_ms_default", limits.timeout_ms_default),
            ("limits.globals_max", as_u64(limits.globals_max)),
            ("limits.branches_per_global_max", as_u64(limits.branches_per_global_max)),
            ("limits.rows_per_request_max", as_u64(limits.rows_per_request_max)),
            ("limits.rows_per_branch_max", as_u64(limits.rows_per_branch_max)),
            ("limits.locks_max", as_u64(limits.locks_max)),
            ("limits.saga_steps_max", as_u64(limits.saga_steps_max)),
            ("limits.saga_depth_max", as_u64(limits.saga_depth_max)),
            ("limits.leases_max", as_u64(limits.leases_max)),
            ("limits.lease_ms_max", limits.lease_ms_max),
            ("limits.step_attempts_told", u64::from(limits.step_attempts_told)),
            ("limits.share_per_connection", as_u64(limits.share_per_connection)),
            ("limits.share_per_application", as_u64(limits.share_per_application)),
            ("limits.expiries_per_tick_max", as_u64(limits.expiries_per_tick_max)),
            ("dispatch.retry_delay_ms_min", dispatch.retry_delay_ms_min),
            ("dispatch.answer_timeout_ms", dispatch.answer_timeout_ms),
            ("dispatch.batch_branches_max", as_u64(dispatch.batch_branches_max)),
            ("dispatch.batch_bytes_max", as_u64(dispatch.batch_bytes_max)),
            ("dispatch.in_flight_max", as_u64(dispatch.in_flight_max)),
            ("http.timeout_ms", self.http.timeout_ms),
            ("http.calls_max", as_u64(self.http.calls_max)),
            ("engine.queue_max", as_u64(self.engine.queue_max)),
            ("engine.batch_max", as_u64(self.engine.batch_max)),
        ];
        if self.journal_segment_bytes < SEGMENT_BYTES_MIN {
            messages.push(format!("`journal_segment_bytes` must be at least {SEGMENT_BYTES_MIN}"));
        }
        if i16::try_from(self.seata.undo_log_save_days).is_err() {
            messages.push(format!("`seata.undo_log_save_days` must be at most {}", i16::MAX));
        }
        if limits.events_per_global_max < 2 {
            messages.push("`limits.events_per_global_max` must be at least 2".to_owned());
        }
        for (key, share) in [
            ("limits.share_per_connection", limits.share_per_connection),
            ("limits.share_per_application", limits.share_per_application),
        ] {
            if share > 100 {
                messages.push(format!("`{key}` ({share}) is in per cent, at most 100"));
            }
        }
        let zero = positive.iter().filter(|(_, value)| *value == 0);
        messages.extend(zero.map(|(key, _)| format!("`{key}` must be at least 1")));
    }

    fn check_order(&self, messages: &mut Vec<String>) {
        let limits = &self.limits;
        let dispatch = &self.dispatch;
        let pairs = [
            (
                ("limits.timeout_ms_default", limits.timeout_ms_default),
                ("limits.timeout_ms_max", limits.timeout_ms_max),
            ),
            (
                ("dispatch.retry_delay_ms_min", dispatch.retry_delay_ms_min),
                ("dispatch.retry_delay_ms_max", dispatch.retry_delay_ms_max),
            ),
        ];
        for ((low_key, low), (high_key, high)) in pairs {
            if low > high {
                messages.push(format!("`{low_key}` ({low}) is above `{high_key}` ({high})"));
            }
        }
    }

    fn check_http(&self, messages: &mut Vec<String>) {
        let (timeout_ms, answer_timeout_ms) =
            (self.http.timeout_ms, self.dispatch.answer_timeout_ms);
        if !self.http.participants.is_empty() && timeout_ms > answer_timeout_ms {
            messages.push(format!(
                "`http.timeout_ms` ({timeout_ms}) is above `dispatch.answer_timeout_ms` \
                 ({answer_timeout_ms})"
            ));
        }
        let calls_most = Semaphore::MAX_PERMITS;
        if self.http.calls_max > calls_most {
            messages.push(format!("`http.calls_max` must be at most {calls_most}"));
        }
        let mut prefixes = Vec::new();
        for HttpParticipant { prefix, secret_file } in &self.http.participants {
            if let Err(error) = Prefix::parse(prefix) {
                messages.push(format!("`http.participants`: {error}"));
            }
            if let Err(error) = Secret::read(secret_file) {
                messages.push(format!("`http.participants`: {error}"));
            }
            if prefixes.contains(&prefix) {
                messages.push(format!("`http.participants`: prefix `{prefix}` comes twice"));
            }
            prefixes.push(prefix);
        }
    }

    fn check_tls(&self, messages: &mut Vec<String>) {
        let tls = &self.tls;
        if tls.certificate.is_some() != tls.private_key.is_some() {
            messages.push("`tls.certificate` and `tls.private_key` go together".to_owned());
        }
        if tls.client_authority.is_some() && tls.certificate.is_none() {
            messages.push("`tls.client_authority` needs `tls.certificate`".to_owned());
        }
        let files = [
            ("tls.certificate", &tls.certificate),
            ("tls.private_key", &tls.private_key),
            ("tls.client_authority", &tls.client_authority),
            ("security.tokens", &self.security.tokens),
            ("sql.password_file", &self.sql.password_file),
            ("cluster.authority", &self.cluster.authority),
            ("etcd.password_file", &self.etcd.password_file),
            ("etcd.authority", &self.etcd.authority),
            ("etcd.certificate", &self.etcd.certificate),
            ("etcd.private_key", &self.etcd.private_key),
        ];
        for (key, path) in files {
            if path.as_deref().is_some_and(|path: &Path| !path.is_file()) {
                let path = path.as_deref().map(Path::display).into_iter();
                messages.extend(path.map(|path| format!("`{key}`: there is no file {path}")));
            }
        }
    }

    /// Checks that, without TLS and tokens, only this machine can reach the coordinator, unless the
    /// flag allows otherwise.
    fn check_exposure(&self, messages: &mut Vec<String>) {
        let flag = "insecure_allow_plaintext_and_anonymous_on_non_loopback";
        let allowed = self.security.insecure_allow_plaintext_and_anonymous_on_non_loopback;
        // Seata's protocol cannot be protected by either.
        let seata = self.seata.listen;
        if self.seata.enabled && !allowed && !is_loopback(seata) {
            messages.push(format!(
                "`seata.listen` {seata} can be reached from other machines, and Seata's protocol \
                 has neither encryption nor tokens: listen on 127.0.0.1, or set `security.{flag}`"
            ));
        }
        let protected = self.tls.certificate.is_some() && self.security.tokens.is_some();
        if protected || allowed {
            return;
        }
        let listens = [("grpc.listen", self.grpc.listen), ("admin.listen", self.admin.listen)];
        let exposed = listens.iter().filter(|(_, address)| !is_loopback(*address));
        messages.extend(exposed.map(|(key, address)| {
            format!(
                "`{key}` {address} can be reached from other machines: set `tls.certificate`, \
                 `tls.private_key` and `security.tokens`, listen on 127.0.0.1, or set \
                 `security.{flag}`"
            )
        }));
    }

    /// Checks that the address names a machine. It is part of every XID, and an unspecified address
    /// would not distinguish coordinators.
    fn check_address(&self, messages: &mut Vec<String>) {
        let listen = self.grpc.listen;
        if listen.ip().is_unspecified() && self.advertised_address.is_none() {
            messages
                .push(format!("`grpc.listen` {listen} names no machine: set `advertised_address`"));
        }
    }

    /// Checks that a shared store is named, and that others can reach this node.
    fn check_cluster(&self, messages: &mut Vec<String>) {
        if self.store == StoreKind::Sql && self.sql.url.is_none() {
            messages.push("`store = \"sql\"` needs `sql.url`".to_owned());
        }
        let etcd = &self.etcd;
        if self.store == StoreKind::Etcd && etcd.endpoints.is_empty() {
            messages.push("`store = \"etcd\"` needs `etcd.endpoints`".to_owned());
        }
        if etcd.user.is_some() != etcd.password_file.is_some() {
            messages.push("`etcd.user` and `etcd.password_file` go together".to_owned());
        }
        if etcd.certificate.is_some() != etcd.private_key.is_some() {
            messages.push("`etcd.certificate` and `etcd.private_key` go together".to_owned());
        }
        if let Some(Err(message)) = self.sql.url.as_deref().map(check_url) {
            messages.push(format!("`sql.url` {message}"));
        }
        if self.store.is_shared() && self.cluster.host.is_none() {
            let seata = self.seata.enabled.then_some(("seata.listen", self.seata.listen));
            let listens = [("grpc.listen", self.grpc.listen), ("admin.listen", self.admin.listen)];
            let listens = listens.into_iter().chain(seata);
            let nowhere = listens.filter(|(_, address)| address.ip().is_unspecified());
            messages.extend(nowhere.map(|(key, address)| {
                format!("`{key}` {address} names no machine to other nodes: set `cluster.host`")
            }));
        }
        let namespace = &self.cluster.namespace;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if namespace.is_empty() || namespace.len() > 64 || !namespace.chars().all(is_plain) {
            messages.push(
                "`cluster.namespace` must be 1 to 64 letters, digits, `-` and `_`".to_owned(),
            );
        }
        let node = self.cluster.node.as_deref().unwrap_or("unset");
        if node.is_empty() || node.len() > 255 || node.chars().any(char::is_control) {
            messages.push(
                "`cluster.node` must be 1 to 255 bytes without control characters".to_owned(),
            );
        }
        if self.cluster.lease_ms < LEASE_MS_MIN {
            messages.push(format!("`cluster.lease_ms` must be at least {LEASE_MS_MIN}"));
        }
    }

    fn check_text(&self, messages: &mut Vec<String>) {
        if let Err(error) = EnvFilter::try_new(&self.log.filter) {
            messages.push(format!("`log.filter`: {error}"));
        }
        let address = self.advertised_address.as_deref().unwrap_or("unset");
        if address.len() > 255 || address.chars().any(|c| c.is_whitespace() || c.is_control()) {
            messages.push(
                "`advertised_address` must be at most 255 bytes without white space".to_owned(),
            );
        }
    }
}

/// Checks the URL of a database, which is printed and so holds no secret.
fn check_url(url: &str) -> Result<(), String> {
    let parsed = reqwest::Url::parse(url).map_err(|error| format!("is no URL: {error}"))?;
    if !["postgres", "postgresql", "mysql", "mariadb"].contains(&parsed.scheme()) {
        return Err("must begin with postgres:// or mysql://".to_owned());
    }
    if parsed.password().is_some() {
        return Err("must not contain the password: set `sql.password_file`".to_owned());
    }
    Ok(())
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
