//! The reference page of the command line against the program.
//!
//! The text below [`MARKER`] in the page is made here; `UPDATE_EXPECT=1` writes it again. The text
//! above it is written by hand and not read here.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::process::Command;

use expect_test::expect_file;

const MARKER: &str = "<!-- generated below -->\n";

/// The command that has the options of every client of the admin API, and no others.
const CLIENT: &str = "status";

#[test]
fn the_command_line_page_shows_every_help_text() {
    let shared = help(&[CLIENT.to_owned()]);
    let shared: Vec<&str> = shared.lines().filter_map(option_name).collect();
    let texts = help_texts(&[], &shared);
    let page = format!(
        "\n## Every help text\n\n\
         A command that asks a running coordinator also has the options of \
         [`handfast {CLIENT}`](#handfast-{CLIENT}), which the other texts leave out. \
         `handfast help COMMAND` prints one of them.\n{texts}"
    );
    check("command-line.md", &page);
}

/// Compares the generated part of a page, or writes it.
fn check(page: &str, generated: &str) {
    let path = format!("{}/../docs/reference/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let (by_hand, _) = text.split_once(MARKER).expect("the page has the marker");
    expect_file![path].assert_eq(&format!("{by_hand}{MARKER}{generated}"));
}

/// Returns the sections of a command and of its subcommands, in the program's order.
fn help_texts(command: &[String], shared: &[&str]) -> String {
    let text = help(command);
    let is_client = command.first().is_some_and(|name| name == CLIENT);
    let shown = if is_client { text.clone() } else { without_options(&text, shared) };
    let heading = [&["handfast".to_owned()], command].concat().join(" ");
    let mut sections = format!("\n### {heading}\n\n```text\n{}\n```\n", shown.trim_end());
    for subcommand in subcommands(&text) {
        sections += &help_texts(&[command, &[subcommand.to_owned()]].concat(), shared);
    }
    sections
}

fn help(command: &[String]) -> String {
    let arguments: Vec<&str> =
        ["help"].into_iter().chain(command.iter().map(String::as_str)).collect();
    let mut program = Command::new(env!("CARGO_BIN_EXE_handfast"));
    let output = program.args(&arguments).env_clear().output().unwrap();
    assert!(output.status.success(), "handfast {arguments:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn subcommands(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    // Lines that go on with a description stand further in.
    let named = lines.filter_map(|line| line.strip_prefix("  ").filter(|it| !it.starts_with(' ')));
    named.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help")
}

/// Returns the long name of the option that begins on this line of a help text.
fn option_name(line: &str) -> Option<&str> {
    let is_further_in = line.starts_with("       ");
    let mut words = Some(line.trim()).filter(|_| !is_further_in)?.split([' ', ',']);
    let first = words.next().filter(|word| word.starts_with('-'))?;
    std::iter::once(first).chain(words).find(|word| word.starts_with("--"))
}

fn without_options(help: &str, names: &[&str]) -> String {
    let Some((before, options)) = help.split_once("\nOptions:\n") else { return help.to_owned() };
    let mut is_kept = true;
    let mut kept = String::new();
    for line in options.split_inclusive('\n') {
        if let Some(name) = option_name(line) {
            is_kept = !names.contains(&name);
        }
        if is_kept {
            kept += line;
        }
    }
    match kept.as_str() {
        "" => before.to_owned(),
        kept => format!("{before}\nOptions:\n{kept}"),
    }
}
