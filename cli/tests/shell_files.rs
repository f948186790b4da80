//! Completions and manual pages, made by the process.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

fn handfast(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast"));
    command.args(arguments);
    command
}

fn script(shell: &str) -> String {
    let output = handfast(&["completions", shell]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{shell}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a script in bash, and returns what it prints.
fn bash(script: &str) -> String {
    let mut child =
        Command::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_commands_and_options() {
    let complete = |words: &str, at: usize| {
        let words = format!(
            "COMP_WORDS=({words}); COMP_CWORD={at}; _handfast handfast \
             \"${{COMP_WORDS[{at}]}}\"; echo \"${{COMPREPLY[@]}}\"\n"
        );
        bash(&format!("{}\n{words}", script("bash")))
    };
    assert_eq!(complete("handfast mig", 1), "migrate-store\n");
    assert_eq!(complete("handfast tx res", 2), "resume resolve\n");
    assert_eq!(complete("handfast tx ls --older", 3), "--older-than\n");
}

#[test]
fn zsh_and_fish_are_told_of_commands() {
    for shell in ["zsh", "fish"] {
        let script = script(shell);
        assert!(script.contains("migrate-store") && script.contains("older-than"), "{shell}");
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("man1");
    let output = handfast(&["man-pages", "--to"]).arg(&to).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let names = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name());
    let names: BTreeSet<String> = names.map(|name| name.into_string().unwrap()).collect();
    for name in ["handfast.1", "handfast-serve.1", "handfast-tx.1", "handfast-tx-ls.1"] {
        assert!(names.contains(name), "{names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("help")), "{names:?}");
    let page = fs::read_to_string(to.join("handfast-tx-ls.1")).unwrap();
    assert!(page.contains("Lists transactions, youngest first"), "{page}");
    assert!(page.contains("older\\-than"), "{page}");
}

#[test]
fn a_place_that_is_no_directory_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = handfast(&["man-pages", "--to"]).arg(file.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.starts_with("error[HF-CLI-FILE]: "), "{errors}");
    assert!(errors.contains(&file.path().display().to_string()), "{errors}");
}
