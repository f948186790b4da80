//! Configuration from file, environment and flags, and its problems.

use std::path::PathBuf;

use expect_test::{expect, expect_file};
use handfast_server::config::{Config, Given, Source, StoreKind, environment_name, keys};

fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn flag(key: &str, value: &str) -> Given {
    let source = Source::Flag(format!("--set {key}"));
    Given { key: key.to_owned(), value: toml::Value::String(value.to_owned()), source }
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("handfast.toml");
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

/// Returns the message without the temporary directory.
fn problems(text: &str, variables: &[(&str, &str)], flags: Vec<Given>) -> String {
    let (directory, path) = file(text);
    let error = Config::load(Some(&path), environment(variables), flags).unwrap_err();
    assert_eq!(error.code(), "HF-CFG-INVALID");
    error.to_string().replace(directory.path().to_str().unwrap(), "DIR")
}

#[test]
fn later_layers_win() {
    let (_directory, path) =
        file("store = \"memory\"\nshutdown_limit_ms = 1\n[limits]\nglobals_max = 1");
    let variables =
        environment(&[("HANDFAST_LIMITS_GLOBALS_MAX", "2"), ("HANDFAST_SHUTDOWN_LIMIT_MS", "2")]);
    let flags = vec![flag("limits.globals_max", "3")];
    let config = Config::load(Some(&path), variables, flags).unwrap();
    assert_eq!(config.store, StoreKind::Memory);
    assert_eq!(config.shutdown_limit_ms, 2);
    assert_eq!(config.limits.globals_max, 3);
}

#[test]
fn text_is_parsed_by_the_type_of_its_key() {
    let variables = environment(&[
        ("HANDFAST_DATA_DIR", "2026"),
        ("HANDFAST_ADVERTISED_ADDRESS", "tc.example:7091"),
        ("HANDFAST_GRPC_LISTEN", "[::1]:0"),
        ("HANDFAST_SECURITY_AUDIT_LOG", "/var/log/audit.jsonl"),
        ("HANDFAST_SECURITY_INSECURE_ALLOW_PLAINTEXT_AND_ANONYMOUS_ON_NON_LOOPBACK", "true"),
        ("HANDFAST_TOKEN", "belongs to the command line"),
        ("PATH", "is none of ours"),
    ]);
    let config = Config::load(None, variables, Vec::new()).unwrap();
    assert_eq!(config.data_dir, PathBuf::from("2026"));
    assert_eq!(config.advertised_address.as_deref(), Some("tc.example:7091"));
    assert_eq!(config.grpc.listen.to_string(), "[::1]:0");
    assert_eq!(config.security.audit_log, Some(PathBuf::from("/var/log/audit.jsonl")));
    assert!(config.security.insecure_allow_plaintext_and_anonymous_on_non_loopback);
}

/// Regression: in a namespace of Kubernetes with a service `handfast` no coordinator started.
#[test]
fn variables_of_others_are_passed_over() {
    let of_others = [
        "HANDFAST_SERVICE_HOST",
        "HANDFAST_SERVICE_PORT",
        "HANDFAST_SERVICE_PORT_GRPC",
        "HANDFAST_GRPC_SERVICE_HOST",
        "HANDFAST_PORT",
        "HANDFAST_PORT_7091_TCP",
        "HANDFAST_PORT_7091_TCP_ADDR",
        "HANDFAST_TEST_POSTGRES",
        "HANDFAST_DATABASE",
        "HANDFAST_TOKEN",
    ];
    let variables = of_others.map(|name| (name.to_owned(), "tcp://10.0.0.1:7091".to_owned()));
    assert_eq!(Config::load(None, variables, Vec::new()), Ok(Config::default()));
    for unknown in ["HANDFAST_SERVICE", "HANDFAST_GRPC_PORT", "HANDFAST_SERVICE_PORTS"] {
        let variables = [(unknown.to_owned(), "7091".to_owned())];
        assert!(Config::load(None, variables, Vec::new()).is_err(), "{unknown}");
    }
}

#[test]
fn every_problem_is_listed_with_its_source() {
    let flags = vec![flag("nowhere", "1"), flag("limits", "1")];
    let listed = problems(
        "store = \"tape\"\ndata_dri = \"x\"\n[limits]\nglobals_max = -1\n[grpcc]\nlisten = \"x\"",
        &[("HANDFAST_GRPC_LISTEN", "here"), ("HANDFAST_GRPC_LISTENN", "127.0.0.1:1")],
        flags,
    );
    expect![[r#"
        the configuration has 8 problem(s):
          environment variable HANDFAST_GRPC_LISTENN: unknown setting
          file DIR/handfast.toml: unknown setting `data_dri`
          file DIR/handfast.toml: unknown setting `grpcc.listen`
          file DIR/handfast.toml: `limits.globals_max`: invalid value: integer `-1`, expected usize
          file DIR/handfast.toml: `store`: unknown variant `tape`, expected one of `memory`, `embedded`, `sql`, `etcd`
          environment variable HANDFAST_GRPC_LISTEN: `grpc.listen`: invalid socket address syntax
          flag --set nowhere: unknown setting `nowhere`
          flag --set limits: `limits` is a section, not a setting"#]]
    .assert_eq(&listed);
}

#[test]
fn values_must_be_consistent() {
    let listed = problems(
        "journal_segment_bytes = 16383\n\
         [limits]\nglobals_max = 0\ntimeout_ms_default = 2\ntimeout_ms_max = 1\n\
         [tls]\ncertificate = \"/nowhere/c.pem\"\n[log]\nfilter = \"a=b=c\"",
        &[("HANDFAST_ADVERTISED_ADDRESS", "two words")],
        Vec::new(),
    );
    expect_file!["expected/senseless.txt"].assert_eq(&listed);
}

#[test]
fn other_machines_need_tls_and_tokens() {
    let listed = problems(
        "[grpc]\nlisten = \"0.0.0.0:7091\"\n[admin]\nlisten = \"[2001:db8::1]:7092\"",
        &[],
        Vec::new(),
    );
    expect_file!["expected/exposed.txt"].assert_eq(&listed);
    for loopback in ["127.3.2.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
        let flags = vec![flag("grpc.listen", loopback), flag("admin.listen", loopback)];
        assert!(Config::load(None, [], flags).is_ok(), "{loopback} was refused");
    }
    let insecure = "security.insecure_allow_plaintext_and_anonymous_on_non_loopback";
    let flags = vec![flag("grpc.listen", "192.0.2.1:0"), flag(insecure, "true")];
    assert!(Config::load(None, [], flags).is_ok());
}

#[test]
fn tls_and_tokens_are_needed_together() {
    let (_directory, path) = file("");
    let path = path.to_str().unwrap();
    let tls = [("tls.certificate", path), ("tls.private_key", path)];
    let tokens = [("security.tokens", path)];
    let load = |pairs: &[(&str, &str)]| {
        let mut flags = vec![flag("grpc.listen", "192.0.2.1:0")];
        flags.extend(pairs.iter().map(|(key, value)| flag(key, value)));
        Config::load(None, [], flags)
    };
    assert!(load(&tls).is_err());
    assert!(load(&tokens).is_err());
    assert!(load(&[tls.as_slice(), tokens.as_slice()].concat()).is_ok());
}

#[test]
fn a_missing_or_broken_file_is_a_problem() {
    let error = Config::load(Some("/nowhere/handfast.toml".as_ref()), [], Vec::new()).unwrap_err();
    expect![[r#"
        the configuration has 1 problem(s):
          file /nowhere/handfast.toml: No such file or directory (os error 2)"#]]
    .assert_eq(&error.to_string());
    let listed = problems("store =!", &[], Vec::new());
    expect![[r#"
            the configuration has 1 problem(s):
              file DIR/handfast.toml: TOML parse error at line 1, column 8
              |
            1 | store =!
              |        ^
            string values must be quoted, expected literal string
        "#]]
    .assert_eq(&listed);
}

#[test]
fn the_printed_configuration_is_read_back() {
    for config in [Config::default(), Config::tiny()] {
        let (_directory, path) = file(&config.to_toml());
        assert_eq!(Config::load(Some(&path), [], Vec::new()), Ok(config));
    }
}

#[test]
fn every_key_has_an_environment_variable_of_its_own() {
    let mut names: Vec<String> = keys().iter().map(|(key, _)| environment_name(key)).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn the_manual_lists_every_key_with_its_default() {
    let manual = include_str!("../../../docs/reference/configuration.md");
    for (key, default) in keys() {
        let row = format!("| `{key}` | `{default}` |");
        assert!(manual.contains(&row), "the page has no row that begins with {row}");
    }
}

// Regression: the start panicked.
#[test]
fn calls_are_limited_to_the_permits_there_are() {
    let most = tokio::sync::Semaphore::MAX_PERMITS;
    let calls_max = |calls: usize| vec![flag("http.calls_max", &calls.to_string())];
    assert!(Config::load(None, [], calls_max(most)).is_ok());
    let listed = problems("", &[], calls_max(most + 1));
    let problem = format!("`http.calls_max` must be at most {most}");
    assert!(listed.contains(&problem), "{listed}");
}

#[test]
fn participants_over_http_are_checked() {
    let listed = problems(
        "[http]\ntimeout_ms = 40000\n\
         [[http.participants]]\nprefix = \"http://user@points/\"\nsecret_file = \"/nowhere/a\"\n\
         [[http.participants]]\nprefix = \"http://points/x\"\nsecret_file = \"/nowhere/b\"\n",
        &[],
        Vec::new(),
    );
    for problem in [
        "prefix `http://user@points/` must not name a user",
        "prefix `http://points/x` must end with a slash",
        "secret /nowhere/a",
        "secret /nowhere/b",
        "`http.timeout_ms` (40000) is above `dispatch.answer_timeout_ms` (30000)",
    ] {
        assert!(listed.contains(problem), "{problem}: {listed}");
    }
}

#[test]
fn a_shared_store_is_checked() {
    let listed = problems(
        "store = \"sql\"\nadvertised_address = \"tc:7091\"\n\
         [grpc]\nlisten = \"0.0.0.0:7091\"\n\
         [cluster]\nnamespace = \"a b\"\nlease_ms = 100\n\
         [etcd]\nuser = \"orders\"\ncertificate = \"/nowhere/a\"\n",
        &[],
        Vec::new(),
    );
    for problem in [
        "`store = \"sql\"` needs `sql.url`",
        "`grpc.listen` 0.0.0.0:7091 names no machine to other nodes: set `cluster.host`",
        "`cluster.namespace` must be 1 to 64 letters, digits, `-` and `_`",
        "`cluster.lease_ms` must be at least 300",
        "`etcd.user` and `etcd.password_file` go together",
        "`etcd.certificate` and `etcd.private_key` go together",
        "`etcd.certificate`: there is no file /nowhere/a",
    ] {
        assert!(listed.contains(problem), "{problem} is not in {listed}");
    }
    let url = |url| problems("", &[], vec![flag("sql.url", url)]);
    for (given, problem) in [
        ("postgres://handfast:secret@db/handfast", "must not contain the password"),
        ("sqlite:///tmp/handfast", "must begin with postgres:// or mysql://"),
        ("db", "is no URL"),
    ] {
        let listed = url(given);
        assert!(listed.contains(&format!("`sql.url` {problem}")), "{listed}");
        assert!(!listed.contains("secret"), "{listed}");
    }
    let listed = problems("", &[], vec![flag("store", "etcd")]);
    assert!(listed.contains("`store = \"etcd\"` needs `etcd.endpoints`"), "{listed}");
}
