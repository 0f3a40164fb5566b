//! The progress line: while a long run works, one line on the terminal says for how long it has
//! been going and how far it got. Gone without a trace when the run ends; nothing for short runs.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::timing::Timing;

/// How long a run may be silent.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the line is written anew.
const INTERVAL: Duration = Duration::from_millis(200);
/// Back to the start of the line, and clear it.
const ERASE: &str = "\r\x1b[K";

/// Does `work` and shows a progress line beside it, if `wanted` and stderr is a terminal.
/// `state` says how far the work got.
pub(super) fn during<T>(
    wanted: bool,
    state: &(dyn Fn() -> String + Sync),
    work: impl FnOnce() -> T,
) -> T {
    if !wanted || !io::stderr().is_terminal() {
        return work();
    }
    let (running, ended) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || show(&ended, state, &mut io::stderr(), PATIENCE, INTERVAL));
        // Dropped when the work is done or panics; either way the other thread then ends.
        let _running = running;
        work()
    })
}

/// Writes the line until the other end of `ended` is dropped.
fn show(
    ended: &Receiver<()>,
    state: &dyn Fn() -> String,
    terminal: &mut impl Write,
    patience: Duration,
    interval: Duration,
) {
    let start = Instant::now();
    let mut wait = patience;
    while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        let line = format!("btfcache: {:.1} s{}", start.elapsed().as_secs_f64(), state());
        // A terminal that cannot be written to needs no progress line.
        let _ = write!(terminal, "{ERASE}{line}").and_then(|()| terminal.flush());
        wait = interval;
    }
    if wait == interval {
        let _ = write!(terminal, "{ERASE}").and_then(|()| terminal.flush());
    }
}

/// The last phase that ended.
pub(super) fn last_phase(timing: &Timing) -> String {
    timing.phases().last().map_or_else(String::new, |(phase, _)| format!(", done: {phase}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(
        patience: Duration,
        state: &(dyn Fn() -> String + Sync),
        work: impl FnOnce(),
    ) -> String {
        let (running, ended) = channel::<()>();
        let terminal = thread::scope(|scope| {
            let shower = scope.spawn(move || {
                let mut terminal = Vec::new();
                show(&ended, state, &mut terminal, patience, Duration::from_millis(1));
                terminal
            });
            work();
            drop(running);
            shower.join().unwrap()
        });
        String::from_utf8(terminal).unwrap()
    }

    #[test]
    fn short_run_is_silent() {
        assert_eq!(shown(Duration::from_secs(60), &String::new, || ()), "");
    }

    #[test]
    fn long_run_shows_the_phase_and_erases_it() {
        let timing = Timing::default();
        timing.phase("decode", || ());
        let work = || thread::sleep(Duration::from_millis(50));
        let text = shown(Duration::ZERO, &|| last_phase(&timing), work);
        assert!(text.starts_with("\r\x1b[Kbtfcache: 0.0 s, done: decode"), "{text:?}");
        assert!(text.ends_with(ERASE), "{text:?}");
    }

    #[test]
    fn work_gives_its_result() {
        assert_eq!(during(true, &String::new, || 7), 7);
    }
}
