//! Binds the ports, and opens what decides about access to them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::StartError;
use super::stores::Listening;
use crate::accept::Acceptor;
use crate::admin::SeataAddress;
use crate::audit::AuditLog;
use crate::config::{Config, StoreKind};
use crate::seata::Members;
use crate::security::{Access, CookieSeal, Listener, Tokens, admin_acceptor, grpc_acceptor};
use crate::store;
use crate::turned_away::PortName;

/// The bound sockets, and the rules of access.
pub(super) struct Listeners {
    pub(super) access: Access,
    pub(super) audit: AuditLog,
    pub(super) cookie_seal: CookieSeal,
    pub(super) grpc: Listener,
    pub(super) grpc_address: SocketAddr,
    pub(super) admin: Listener,
    pub(super) admin_address: SocketAddr,
    pub(super) seata: Option<(Acceptor, SocketAddr, Option<Members>)>,
}

impl Listeners {
    pub(super) async fn open(config: &Config) -> Result<Self, StartError> {
        let (grpc, grpc_address) = listen(config.grpc.listen).await?;
        let (admin, admin_address) = listen(config.admin.listen).await?;
        let seata = open_seata(config).await?;
        let grpc = Acceptor::new(grpc, config.grpc.connections_max, PortName::Grpc);
        let admin = Acceptor::new(admin, config.admin.connections_max, PortName::Admin);
        let grpc_limit = Duration::from_millis(config.grpc.silence_timeout_ms);
        let admin_limit = Duration::from_millis(config.admin.silence_timeout_ms);
        Ok(Self {
            access: open_access(config)?,
            audit: open_audit(config)?,
            cookie_seal: open_cookie_seal(config)?,
            grpc: Listener::new(grpc, grpc_acceptor(&config.tls)?, grpc_limit),
            grpc_address,
            admin: Listener::new(admin, admin_acceptor(&config.tls)?, admin_limit),
            admin_address,
            seata,
        })
    }

    /// Returns the addresses that were bound.
    pub(super) fn listening(&self) -> Listening {
        let seata = self.seata.as_ref().map(|(_, address, _)| *address);
        Listening { grpc: self.grpc_address, admin: self.admin_address, seata }
    }

    /// Returns the address that clients of Seata discover: the host of the advertised address, or
    /// the listening address if that names no host.
    pub(super) fn seata_address(&self, advertised: &str) -> Option<SeataAddress> {
        let (_, address, _) = self.seata.as_ref()?;
        let host = advertised.rsplit_once(':').map(|(host, _)| host.to_owned());
        let host = host.unwrap_or_else(|| address.ip().to_string());
        Some(SeataAddress { host, port: address.port(), admin_port: self.admin_address.port() })
    }
}

async fn open_seata(
    config: &Config,
) -> Result<Option<(Acceptor, SocketAddr, Option<Members>)>, StartError> {
    if !config.seata.enabled {
        return Ok(None);
    }
    let (listener, address) = listen(config.seata.listen).await?;
    let acceptor = Acceptor::new(listener, config.seata.connections_max, PortName::Seata);
    let members = config.store.is_shared().then(|| Members::new(config)).transpose()?;
    Ok(Some((acceptor, address, members)))
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

fn open_access(config: &Config) -> Result<Access, StartError> {
    Ok(match &config.security.tokens {
        Some(path) => Access::Tokens(Arc::new(Tokens::read(path)?)),
        None => Access::Open,
    })
}

fn open_audit(config: &Config) -> Result<AuditLog, StartError> {
    match (&config.security.audit_log, config.store) {
        (Some(path), _) => Ok(AuditLog::open(path)?),
        (None, StoreKind::Memory) => Ok(AuditLog::to_log()),
        (None, StoreKind::Embedded | StoreKind::Sql | StoreKind::Etcd) => {
            make_data_dir(&config.data_dir)?;
            Ok(AuditLog::open(&config.data_dir.join("audit.jsonl"))?)
        }
    }
}

/// Opens the key of the console's cookies: none is needed without tokens, and a memory store
/// outlives no process either.
fn open_cookie_seal(config: &Config) -> Result<CookieSeal, StartError> {
    if config.security.tokens.is_none() || config.store == StoreKind::Memory {
        return Ok(CookieSeal::draw());
    }
    make_data_dir(&config.data_dir)?;
    let path = config.data_dir.join("console.key");
    CookieSeal::open(&path).map_err(|source| StartError::ConsoleKey { path, source })
}

fn make_data_dir(directory: &Path) -> Result<(), StartError> {
    store::make_directory(directory)
        .map_err(|source| StartError::DataDir { directory: directory.to_owned(), source })
}
