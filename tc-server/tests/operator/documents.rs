//! The manual against the code.

#[test]
fn every_exit_code_is_in_the_manual() {
    use handfast_server::cli::Exit;
    let manual = include_str!("../../../docs/reference/command-line.md");
    let exits = [
        Exit::Done,
        Exit::Failed,
        Exit::Usage,
        Exit::NotFound,
        Exit::Refused,
        Exit::Unreachable,
        Exit::Unauthorised,
        Exit::Configuration,
        Exit::ServerFailed,
        Exit::CutShort,
    ];
    for exit in exits {
        assert!(manual.contains(&format!("\n| {} | ", exit as u8)), "{exit:?} is missing");
    }
}
