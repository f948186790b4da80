//! The four lines with which a coordinator greets: version, ports, where its records are, and who
//! can reach it.

use std::net::SocketAddr;

use crate::config::{Config, StoreKind};

/// The addresses that a coordinator listens on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) grpc: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) seata: Option<SocketAddr>,
}

/// Returns the greeting.
pub(super) fn greeting(config: &Config, addresses: Addresses) -> String {
    let scheme = if config.tls.certificate.is_some() { "https" } else { "http" };
    let Addresses { grpc, admin, seata } = addresses;
    let seata = seata.map_or(String::new(), |seata| format!("  Seata {seata}"));
    format!(
        "handfast {}\n  \
         services {scheme}://{grpc}  operators {scheme}://{admin}{seata}\n  \
         records  {}\n  \
         access   {}\n",
        env!("CARGO_PKG_VERSION"),
        records(config),
        access(config, addresses),
    )
}

fn records(config: &Config) -> String {
    match config.store {
        StoreKind::Embedded => config.data_dir.display().to_string(),
        StoreKind::Memory => "in memory: gone when this process ends".to_owned(),
        StoreKind::Sql => "in a SQL database that several coordinators may share".to_owned(),
        StoreKind::Etcd => "in an etcd cluster that several coordinators may share".to_owned(),
    }
}

fn access(config: &Config, addresses: Addresses) -> String {
    let tls = match (&config.tls.certificate, &config.tls.client_authority) {
        (None, _) => None,
        (Some(_), None) => Some("TLS"),
        (Some(_), Some(_)) => Some("TLS with client certificates"),
    };
    let tokens = config.security.tokens.is_some();
    let Addresses { grpc, admin, seata } = addresses;
    let listens = [Some(grpc), Some(admin), seata];
    let is_local = listens.iter().flatten().all(|it| it.ip().to_canonical().is_loopback());
    let from = if is_local { "this machine alone" } else { "other machines, too" };
    match (tls, tokens) {
        (Some(tls), true) => format!("protected by {tls} and tokens"),
        (Some(tls), false) => format!("{tls}, but no tokens; reached from {from}"),
        (None, true) => format!("tokens, but no TLS; reached from {from}"),
        (None, false) => format!("open: no TLS, no tokens; reached from {from}"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn addresses(host: &str) -> Addresses {
        let address = |port| format!("{host}:{port}").parse().unwrap();
        Addresses { grpc: address(7091), admin: address(7092), seata: None }
    }

    #[test]
    fn four_lines_say_what_runs_where() {
        let text = greeting(&Config::default(), addresses("127.0.0.1"));
        expect![[r"
            handfast VERSION
              services http://127.0.0.1:7091  operators http://127.0.0.1:7092
              records  handfast-data
              access   open: no TLS, no tokens; reached from this machine alone
        "]]
        .assert_eq(&text.replacen(env!("CARGO_PKG_VERSION"), "VERSION", 1));
    }

    #[test]
    fn what_protects_it_and_what_is_missing_is_said() {
        let said = |config: &Config, host| access(config, addresses(host));
        let mut config = Config::default();
        assert!(said(&config, "0.0.0.0").ends_with("reached from other machines, too"));
        config.security.tokens = Some("tokens".into());
        assert!(said(&config, "0.0.0.0").starts_with("tokens, but no TLS"));
        config.tls.certificate = Some("certificate.pem".into());
        assert_eq!(said(&config, "0.0.0.0"), "protected by TLS and tokens");
        config.tls.client_authority = Some("ca.pem".into());
        assert_eq!(
            said(&config, "0.0.0.0"),
            "protected by TLS with client certificates and tokens"
        );
        config.security.tokens = None;
        let expected =
            "TLS with client certificates, but no tokens; reached from other machines, too";
        assert_eq!(said(&config, "0.0.0.0"), expected);
    }

    #[test]
    fn a_line_fits_the_usual_terminal() {
        let mut config = Config::default();
        config.tls.certificate = Some("certificate.pem".into());
        config.tls.client_authority = Some("ca.pem".into());
        let seata = Some("127.0.0.1:8091".parse().unwrap());
        let text = greeting(&config, Addresses { seata, ..addresses("127.0.0.1") });
        assert_eq!(text.lines().count(), 4, "{text}");
    }
}
