//! Forbidden dependencies: the crate graph and the imports within it.

use crate::tree::SourceFile;

use super::Complaint;
use super::licences::Metadata;

/// A place and what must not be named there.
struct Border {
    place: &'static str,
    forbidden: &'static [&'static str],
}

/// The last columns of the table of crates in ARCHITECTURE.md, as far as imports can break them.
const BORDERS: &[Border] = &[
    Border {
        place: "tc-core/src/",
        forbidden: &[
            "tokio",
            "prost",
            "tonic",
            "futures",
            "rand",
            "SystemTime",
            "std::time::Instant",
            "std::fs",
            "std::net",
            "std::env",
            "async fn",
            "handfast_proto",
        ],
    },
    Border {
        place: "rm-core/src/",
        forbidden: &[
            "tokio",
            "tonic",
            "sqlx",
            "rand::rng",
            "rand::random",
            "SystemTime",
            "std::time::Instant",
            "std::fs",
            "std::net",
            "std::env",
            "handfast_core",
            "handfast_server",
            "handfast::",
        ],
    },
    Border { place: "rm-client/src/", forbidden: &["handfast_core", "handfast_server"] },
    Border { place: "relay/src/", forbidden: &["handfast_core", "handfast_server"] },
    Border {
        place: "sea-orm/src/",
        forbidden: &["handfast_core", "handfast_proto", "handfast_rm_core", "handfast_server"],
    },
    Border { place: "tc-server/src/", forbidden: &["handfast::", "sqlx"] },
    Border {
        place: "quality/tc-sim/src/",
        forbidden: &["tokio", "sqlx", "SystemTime", "HashMap", "HashSet", "std::net", "std::fs"],
    },
    Border { place: "proto/src/", forbidden: &["handfast_core", "handfast_server", "handfast::"] },
    Border {
        place: "locks/src/",
        forbidden: &[
            "handfast_core",
            "handfast_server",
            "handfast::",
            "SystemTime",
            "std::time::Instant",
        ],
    },
    Border {
        place: "etcd/src/",
        forbidden: &["handfast_core", "handfast_locks", "handfast_server", "handfast::"],
    },
    Border { place: "locks/src/machine/", forbidden: &["tokio", "sqlx", "redis", "rand"] },
    Border { place: "locks/src/memory/table.rs", forbidden: &["tokio", "now()"] },
    Border { place: "locks/src/queue.rs", forbidden: &["tokio", "now()"] },
    Border { place: "locks/src/zookeeper/registry.rs", forbidden: &["tokio", "now()"] },
    Border {
        place: "seata-wire/src/",
        forbidden: &["tokio", "std::net", "std::fs", "handfast_core", "handfast_server"],
    },
    Border { place: "migrations/", forbidden: &["sqlx", "tokio"] },
    Border { place: "test-kit/src/", forbidden: &["handfast_sim", "handfast_test_services"] },
    Border { place: "examples/", forbidden: &["handfast_core", "handfast_proto"] },
];

/// Places within a border that may know what the rest behind it must not.
const EXCEPTIONS: &[(&str, &str)] = &[("tc-server/src/store/sql", "sqlx")];

/// The arrows of the crate graph. Development dependencies may point anywhere.
const ARROWS: &[(&str, &[&str])] = &[
    ("handfast-core", &[]),
    ("handfast-proto", &[]),
    ("handfast-seata-wire", &[]),
    ("handfast-migrations", &[]),
    ("handfast-etcd", &[]),
    ("handfast-locks", &["handfast-etcd"]),
    ("handfast-rm-core", &["handfast-proto"]),
    ("handfast-macros", &[]),
    (
        "handfast",
        &[
            "handfast-locks",
            "handfast-macros",
            "handfast-migrations",
            "handfast-proto",
            "handfast-rm-core",
        ],
    ),
    ("handfast-relay", &["handfast"]),
    ("handfast-cli", &["handfast", "handfast-example-shop", "handfast-relay", "handfast-server"]),
    ("handfast-sea-orm", &["handfast"]),
    (
        "handfast-server",
        &["handfast-core", "handfast-etcd", "handfast-proto", "handfast-seata-wire"],
    ),
    (
        "handfast-bench",
        &[
            "handfast",
            "handfast-core",
            "handfast-interop",
            "handfast-locks",
            "handfast-proto",
            "handfast-seata-wire",
            "handfast-server",
            "handfast-test-services",
        ],
    ),
    (
        "handfast-sim",
        &["handfast", "handfast-core", "handfast-proto", "handfast-rm-core", "handfast-server"],
    ),
    ("handfast-test", &["handfast", "handfast-core", "handfast-proto", "handfast-server"]),
    ("handfast-example-shop", &["handfast", "handfast-server"]),
    ("flash-sale", &["handfast", "handfast-example-shop", "handfast-locks", "handfast-server"]),
    ("order-payment", &["handfast-example-shop"]),
    ("order-payment-outbox", &["handfast", "handfast-example-shop"]),
    ("order-payment-saga", &["handfast", "handfast-example-shop"]),
    ("order-payment-tcc", &["handfast", "handfast-example-shop"]),
    ("order-payment-xa", &["handfast-example-shop"]),
    ("stock-sea-orm", &["handfast", "handfast-sea-orm"]),
    ("seed-defects", &["handfast-locks", "handfast-migrations", "handfast-test-services"]),
    // Optional: the feature `harness` starts coordinators in tests and their children.
    ("handfast-test-services", &["handfast-server"]),
    (
        "handfast-crash-tests",
        &["handfast", "handfast-locks", "handfast-server", "handfast-test-services"],
    ),
    ("handfast-console-tests", &["handfast", "handfast-locks", "handfast-test-services"]),
    ("handfast-interop", &["handfast-test-services"]),
    ("handfast-languages", &["handfast-test-services"]),
    ("handfast-tracing-tests", &[]),
    ("xtask", &["handfast-test-services"]),
];

/// Finds code that names what its place must not know.
pub(super) fn check_imports(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for border in BORDERS.iter().filter(|border| file.path.starts_with(border.place)) {
            complaints.extend(check_file(file, border));
        }
    }
    complaints
}

fn check_file(file: &SourceFile, border: &Border) -> Vec<Complaint> {
    let may_know = |name: &str| {
        EXCEPTIONS.iter().any(|(place, known)| file.path.starts_with(place) && *known == name)
    };
    let mut complaints = Vec::new();
    for (at, line) in file.code_lines() {
        let named = border.forbidden.iter().filter(|name| names(&line, name));
        for name in named.filter(|name| !may_know(name)) {
            let what = format!("{} must not know `{name}`", border.place);
            complaints.push(Complaint::at(file, at, what));
        }
    }
    complaints
}

/// Whether the line holds the name as a whole word, outside a string.
fn names(line: &str, name: &str) -> bool {
    let in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"');
    line.match_indices(name).any(|(at, _)| {
        let after = line[at + name.len()..].chars().next();
        let path_goes_on = name.ends_with(':');
        !in_word(line[..at].chars().next_back()) && (path_goes_on || !in_word(after))
    })
}

/// Finds crates of ours that depend on others of ours against the graph.
pub(super) fn check_arrows(metadata: &Metadata) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for member in metadata.members() {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == member.name) else {
            let what = format!("crate {} is not in the crate graph", member.name);
            complaints.push(Complaint::about("tools/xtask/src/tidy/borders.rs", what));
            continue;
        };
        let ours = |name: &&str| ARROWS.iter().any(|(ours, _)| ours == name);
        for target in member.depends_on().filter(ours).filter(|name| !allowed.contains(name)) {
            let what = format!("{} must not depend on {target}", member.name);
            complaints.push(Complaint::about("Cargo.toml", what));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let files = [SourceFile::sample(path, text)];
        check_imports(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_core_must_not_know_tokio_or_clocks() {
        let text = "use tokio::time;\nuse std::time::SystemTime;\n";
        assert_eq!(
            complaints("tc-core/src/global.rs", text),
            [
                "tc-core/src/global.rs:1: tc-core/src/ must not know `tokio`",
                "tc-core/src/global.rs:2: tc-core/src/ must not know `SystemTime`",
            ]
        );
    }

    #[test]
    fn the_client_core_must_not_know_sqlx_and_the_client_may() {
        assert_eq!(complaints("rm-core/src/plan/mod.rs", "use sqlx::Row;\n").len(), 1);
        assert!(complaints("rm-client/src/at/image.rs", "use sqlx::Row;\n").is_empty());
    }

    #[test]
    fn the_sql_store_may_know_sqlx_and_the_rest_of_the_server_must_not() {
        let text = "use sqlx::Row;\n";
        assert!(complaints("tc-server/src/store/sql/dialect/mysql.rs", text).is_empty());
        assert_eq!(complaints("tc-server/src/store/records.rs", text).len(), 1);
    }

    #[test]
    fn only_whole_words_of_code_count() {
        let text = "// tokio is not for us\nlet operand = \"tokio\";\nstruct Tokiot;\n";
        assert!(complaints("tc-core/src/lib.rs", text).is_empty());
        assert!(complaints("tc-server/src/lib.rs", "use handfast_core::Xid;\n").is_empty());
        assert_eq!(complaints("tc-server/src/lib.rs", "use handfast::Handfast;\n").len(), 1);
    }

    #[test]
    fn the_client_must_not_depend_on_the_core() {
        let metadata = Metadata::sample(&[("handfast", "Apache-2.0", &["handfast-core", "serde"])]);
        let found = check_arrows(&metadata);
        assert_eq!(
            found,
            [Complaint::about("Cargo.toml", "handfast must not depend on handfast-core")]
        );
    }

    #[test]
    fn a_crate_outside_the_graph_is_found() {
        let metadata = Metadata::sample(&[("handfast-extra", "Apache-2.0", &[])]);
        assert_eq!(check_arrows(&metadata).len(), 1);
    }
}
