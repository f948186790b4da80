//! The command line as a process against a real coordinator: its output and exit codes.

use std::net::SocketAddr;
use std::process::Output;

use expect_test::{Expect, expect};
use handfast_proto::v1::{Decision, Resolution};
use handfast_server::admin::model::{Recent, Status};

use crate::port::{Admin, TokensFile, roomy, start, start_with};
use crate::serving::handfast;

/// Runs one command while the coordinator inside the test continues.
pub(crate) async fn run(server: SocketAddr, arguments: &str) -> Output {
    let mut command = handfast(&arguments.split(' ').collect::<Vec<_>>());
    command.env("HANDFAST_SERVER", format!("http://{server}"));
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Replaces times, ages and ports, which differ from run to run.
fn steady(printed: &str, xid: &str) -> String {
    let printed = printed.replace(xid, "XID");
    let age = printed.split_once("Z (");
    let age = age.and_then(|(_, rest)| rest.split_once(" ago)")).map(|(age, _)| age.to_owned());
    let printed = age.map_or_else(|| printed.clone(), |age| printed.replace(&age, "AGE"));
    let words = printed.split_inclusive([' ', '\n']).map(|word| {
        let bare = word.trim_end();
        let rest = &word[bare.len()..];
        if bare.len() == 24 && bare.ends_with('Z') {
            return format!("TIME{rest}");
        }
        word.to_owned()
    });
    words.collect()
}

fn check(printed: &str, xid: &str, expected: Expect) {
    expected.assert_eq(&steady(printed, xid));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dirty_write_is_shown_and_resolved() {
    let (server, admin, mut application) = start().await;
    let xid = application.refuse().await;
    admin.until(&xid, Status::NeedsOperator).await;

    let shown = run(server.admin_address, &format!("tx show {xid}")).await;
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    check(
        &text(&shown.stdout),
        &xid,
        expect![[r#"
        XID  needs_operator (requested)
        order-service / place-order  begun TIME (AGE ago)  deadline TIME

        branches
        BRANCH  MODE  STATE    ATTEMPTS  ROWS  RESOURCE      LAST FAILURE
        7       at    refused  1         1     sqlite:stock  dirty write

        timeline
        AT                        WHAT
        TIME  begun
        TIME  branch 7 registered on sqlite:stock
        TIME  decided: roll back (requested)
        TIME  branch 7: attempt 1 failed: dirty write

        branch 7 needs a decision: dirty write
        120 rows, 1 of them dirty, 2 shown; 1 event held

        stock 42: dirty
        COLUMN  BEFORE  AFTER  CURRENT
        units   10      7      3
        restore_clean leaves it, accept_current leaves it, force_before writes BEFORE over it

        booking 9: clean
        COLUMN  BEFORE  AFTER  CURRENT
        units   <null>  3      3
        restore_clean removes it, accept_current leaves it, force_before removes it

        to end it
        handfast tx resolve XID 7 restore_clean    # put back clean rows, leave dirty ones (the default); held events are dropped
        handfast tx resolve XID 7 accept_current   # leave every row as it is; held events are sent
        handfast tx resolve XID 7 force_before     # write the before image over every row; held events are dropped
    "#]],
    );

    let listed = run(server.admin_address, "tx ls --status needs_operator --json").await;
    let page: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(page["items"][0]["xid"], xid);
    let locks = run(server.admin_address, "lock ls").await;
    assert!(text(&locks.stdout).contains(&xid));

    let resolved = run(server.admin_address, &format!("tx resolve {xid} 7 force_before")).await;
    assert_eq!(resolved.status.code(), Some(0), "{}", text(&resolved.stderr));
    check(
        &text(&resolved.stdout),
        &xid,
        expect![[r#"
            XID is rolling_back
        "#]],
    );
    let (_call, branch) = application.finish().await;
    assert_eq!(branch.resolution(), Resolution::ForceBefore);
    admin.until(&xid, Status::RolledBack).await;
    let again = run(server.admin_address, &format!("tx resolve {xid} 7 force_before")).await;
    assert_eq!(again.status.code(), Some(4), "{}", text(&again.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_did_is_shown_once_for_each_action() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = roomy();
    config.security.audit_log = Some(directory.path().join("audit.jsonl"));
    let (server, admin, mut application) = start_with(config).await;
    let xid = application.refuse().await;
    admin.until(&xid, Status::NeedsOperator).await;
    let before = run(server.admin_address, "audit").await;
    assert_eq!(text(&before.stdout), "no action is recorded\n");
    let paused = run(server.admin_address, &format!("tx pause {xid}")).await;
    assert_eq!(paused.status.code(), Some(0), "{}", text(&paused.stderr));
    run(server.admin_address, &format!("tx resolve {xid} 8 --reason wrong")).await;
    let number = xid.rsplit(':').next().unwrap();
    let shown = run(server.admin_address, &format!("audit --xid {xid} --lines 1")).await;
    let printed = text(&shown.stdout).replace(number, "XID");
    let lines: Vec<Vec<&str>> =
        printed.lines().map(|line| line.split_whitespace().skip(1).collect()).collect();
    let resolve = "anonymous resolve XID 8 restore_clean: wrong HF-TC-UNKNOWN-BRANCH";
    let expected = ["OPERATOR ACTION ON DETAIL OUTCOME", resolve, "anonymous pause XID done"];
    assert_eq!(lines, expected.map(|line| line.split(' ').collect::<Vec<_>>()), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clean_rows_are_restored_by_default() {
    let (server, admin, mut application) = start().await;
    let xid = application.refuse().await;
    admin.until(&xid, Status::NeedsOperator).await;
    let resolved = run(server.admin_address, &format!("tx resolve {xid} 7")).await;
    assert_eq!(resolved.status.code(), Some(0), "{}", text(&resolved.stderr));
    let (_call, branch) = application.finish().await;
    assert_eq!(branch.resolution(), Resolution::RestoreClean);
    admin.until(&xid, Status::RolledBack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn current_data_is_accepted_from_the_command_line() {
    let (server, admin, mut application) = start().await;
    let xid = application.refuse().await;
    admin.until(&xid, Status::NeedsOperator).await;
    let resolve = format!("tx resolve {xid} 7 accept_current");
    let resolved = run(server.admin_address, &resolve).await;
    assert_eq!(resolved.status.code(), Some(0), "{}", text(&resolved.stderr));
    let (_call, branch) = application.finish().await;
    assert_eq!(branch.resolution(), Resolution::AcceptCurrent);
    admin.until(&xid, Status::RolledBack).await;
    let locks = run(server.admin_address, "lock ls").await;
    assert!(!text(&locks.stdout).contains(&xid), "{}", text(&locks.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_plain_without_a_terminal() {
    let (server, admin, mut application) = start().await;
    let xid = application.begin("place-order").await;
    application.register(&xid, 7, "2:42").await.unwrap();
    application.end(&xid, Decision::Commit).await;
    application.finish().await;
    admin.until(&xid, Status::Committed).await;
    let shown = run(server.admin_address, &format!("tx show {xid}")).await;
    let printed = text(&shown.stdout);
    let from_branches = printed.split_once("\nbranches\n").unwrap().1;
    check(
        from_branches,
        &xid,
        expect![[r#"
            BRANCH  MODE  STATE     ATTEMPTS  ROWS  RESOURCE      LAST FAILURE
            7       at    finished  0         0     sqlite:stock  -

            timeline
            AT                        WHAT
            TIME  begun
            TIME  branch 7 registered on sqlite:stock
            TIME  decided: commit
            TIME  branch 7 finished
            TIME  committed
        "#]],
    );
    let resources = run(server.admin_address, "resources").await;
    check(
        &text(&resources.stdout),
        &xid,
        expect![[r#"
            RESOURCE      MODE  PROCESSES  WAITING  ASKED  LABEL
            sqlite:stock  at    1          0        0      SQLite stock.db
        "#]],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reading_command_has_json_and_a_table() {
    let (server, _admin, mut application) = start().await;
    let xid = application.begin("place-order").await;
    application.register(&xid, 7, "2:42").await.unwrap();
    let show_lock = format!("lock show {} stock 42", crate::application::RESOURCE);
    let show = format!("tx show {xid}");
    let queue = show_lock.replace("show", "queue");
    let lists = ["tx ls", "lock ls", "lease ls", "resources", "processes", "status"];
    let commands = lists.into_iter().chain(["lock graph", "lock deadlocks"]);
    let commands = commands.chain([&*show, &*show_lock, &*queue]);
    for command in commands {
        let json = run(server.admin_address, &format!("{command} --json")).await;
        assert_eq!(json.status.code(), Some(0), "{command}: {}", text(&json.stderr));
        serde_json::from_slice::<serde_json::Value>(&json.stdout).unwrap();
        let table = run(server.admin_address, command).await;
        assert_eq!(table.status.code(), Some(0), "{command}");
        assert!(table.stdout.ends_with(b"\n") && table.stdout.len() > 10, "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_act_and_exit_codes_show_the_result() {
    let (server, _admin, mut application) = start().await;
    let xid = application.begin("place-order").await;
    application.register(&xid, 7, "2:42").await.unwrap();
    let cases = [
        (format!("tx rollback {xid} --reason stuck"), 0, ""),
        (format!("tx pause {xid}"), 0, ""),
        (format!("tx resume {xid}"), 0, ""),
        (format!("tx retry {xid}"), 0, ""),
        (format!("tx commit {xid}"), 4, "error[HF-TC-ALREADY-DECIDED]"),
        ("tx show 99".to_owned(), 3, "error[HF-TC-UNKNOWN-XID]"),
        ("lease show nothing".to_owned(), 3, "error[HF-TC-LOCK-NOT-HELD]"),
        ("lease release nothing".to_owned(), 3, "error[HF-TC-LOCK-NOT-HELD]"),
        ("tx show ../status".to_owned(), 2, "error[HF-CLI-ARGUMENT]"),
        ("tx show nonsense".to_owned(), 2, "error[HF-ADM-BAD-REQUEST]"),
        ("lock show r t 1".to_owned(), 3, "error[HF-ADM-NOT-LOCKED]"),
        ("tx ls --status odd".to_owned(), 2, "invalid value"),
        ("status --server nowhere".to_owned(), 2, "error[HF-CLI-SERVER]"),
        ("status --server http://127.0.0.1:1".to_owned(), 5, "error[HF-CLI-UNREACHABLE]"),
        ("nonsense".to_owned(), 2, "unrecognized subcommand"),
        ("--version".to_owned(), 0, ""),
    ];
    for (command, code, said) in cases {
        let output = run(server.admin_address, &command).await;
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command}: {errors}");
        assert!(errors.contains(said), "{command}: {errors}");
        assert_eq!(errors.is_empty(), code == 0, "{command}: {errors}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drawn_token_works_for_its_role() {
    let tokens = TokensFile::draw();
    let drawn = handfast(&["token", "new", "--name", "bob", "--role", "viewer"]).output().unwrap();
    let printed = text(&drawn.stdout);
    let lines: Vec<&str> = printed.lines().filter(|line| !line.starts_with('#')).collect();
    let [token, line] = lines[..] else { panic!("a token and its line: {printed}") };
    std::fs::write(tokens.path(), line).unwrap();
    let mut config = roomy();
    config.security.tokens = Some(tokens.path());
    let server = handfast_server::serve::Server::start(config).await.unwrap();
    let status = async |token: Option<&str>, arguments: &str| {
        let mut command = handfast(&arguments.split(' ').collect::<Vec<_>>());
        command.env("HANDFAST_SERVER", format!("http://{}", server.admin_address));
        command.envs(token.map(|token| ("HANDFAST_TOKEN", token)));
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        output.status.code()
    };
    assert_eq!(status(Some(token), "status").await, Some(0));
    assert_eq!(status(None, "status").await, Some(6));
    assert_eq!(status(Some(&tokens.viewer), "status").await, Some(6));
    assert_eq!(status(Some(token), "tx commit 1").await, Some(6));
    let admin = Admin::new(&format!("http://{}", server.admin_address), Some(token.to_owned()));
    admin.get::<serde_json::Value>("/api/v1/status").await;
}

#[test]
fn the_effective_configuration_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("handfast.toml");
    std::fs::write(&path, "store = \"memory\"\n").unwrap();
    let output = handfast(&["config", "--set", "limits.globals_max=5"])
        .env("HANDFAST_CONFIG", &path)
        .env("HANDFAST_LOG_FORMAT", "json")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed: toml::Table = text(&output.stdout).parse().unwrap();
    assert_eq!(printed["store"].as_str(), Some("memory"));
    assert_eq!(printed["limits"]["globals_max"].as_integer(), Some(5));
    assert_eq!(printed["log"]["format"].as_str(), Some("json"));
    let wrong = handfast(&["config", "--set", "odd"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_minutes_are_shown() {
    let (server, _admin, _application) = start().await;
    let shown = run(server.admin_address, "recent --json").await;
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let recent: Recent = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(recent.step_ms, 10_000);
    let shown = run(server.admin_address, "recent").await;
    let shown = text(&shown.stdout);
    assert!(shown.starts_with("nothing yet") || shown.starts_with("UTC"), "{shown}");
}
