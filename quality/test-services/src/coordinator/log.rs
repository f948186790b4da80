//! The log of a running program, read by a thread while it is written: a pipe that fills up would
//! stop the program.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The lines so far.
#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    has_ended: bool,
}

/// A log that grows until the program ends.
#[derive(Debug, Default)]
pub(super) struct ProcessLog {
    state: Mutex<Lines>,
    /// Notified of each line and of the end.
    grown: Condvar,
}

impl ProcessLog {
    /// Reads the pipe to its end in a thread of its own. Each line is also appended to `copy`.
    pub(super) fn read(pipe: impl Read + Send + 'static, mut copy: Option<File>) -> Arc<Self> {
        let log = Arc::new(Self::default());
        let written = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if let Some(file) = &mut copy {
                    // A copy that cannot be written must not stop the program whose log it is.
                    let _ = writeln!(file, "{line}");
                }
                written.state().lines.push(line);
                written.grown.notify_all();
            }
            written.state().has_ended = true;
            written.grown.notify_all();
        });
        log
    }

    /// Waits for a line at or after `from` that matches, and returns its position. `None`: the log
    /// has ended without one, or the time is up.
    pub(super) fn wait_for(
        &self,
        from: usize,
        within: Duration,
        matches: impl Fn(&str) -> bool,
    ) -> Option<usize> {
        let (started, mut next) = (Instant::now(), from);
        let mut state = self.state();
        loop {
            if let Some(found) = state.lines.iter().skip(next).position(|line| matches(line)) {
                return Some(next + found);
            }
            next = next.max(state.lines.len());
            // The lines come before the end: the last line and the end may have come together.
            let left = within.checked_sub(started.elapsed());
            let (false, Some(left)) = (state.has_ended, left) else { return None };
            let waited = self.grown.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the end of the log.
    pub(super) fn wait_for_end(&self) {
        let state = self.state();
        let ended = self.grown.wait_while(state, |state| !state.has_ended);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    /// The lines from a position on.
    pub(super) fn lines_from(&self, from: usize) -> Vec<String> {
        self.state().lines.iter().skip(from).cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, Lines> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn a_line_is_found_from_a_position_on() {
        let log = ProcessLog::read(&b"one\ntwo\none\n"[..], None);
        assert_eq!(log.wait_for(0, SOON, |line| line == "one"), Some(0));
        assert_eq!(log.wait_for(1, SOON, |line| line == "one"), Some(2));
        assert_eq!(log.lines_from(2), ["one"]);
    }

    #[test]
    fn the_end_of_the_log_ends_the_wait() {
        let log = ProcessLog::read(&b"one\n"[..], None);
        assert_eq!(log.wait_for(0, SOON, |line| line == "two"), None);
        log.wait_for_end();
    }
}
