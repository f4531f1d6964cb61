//! CPU time of this process and of its finished children.

use std::error::Error;

/// Linux counts in hundredths of a second on every architecture.
const TICK_MICROS: f64 = 10_000.0;

/// Microseconds since the process started, including finished children.
pub(crate) fn cpu_micros() -> Result<f64, Box<dyn Error>> {
    of_process("self")
        .map(|cpu| cpu.own_micros + cpu.children_micros)
        .ok_or_else(|| "no CPU time in /proc/self/stat".into())
}

pub(crate) struct Cpu {
    pub(crate) parent: u32,
    pub(crate) own_micros: f64,
    /// Children that ended and were waited for.
    pub(crate) children_micros: f64,
}

/// The CPU time of a process; `None` if it does not exist.
pub(crate) fn of_process(pid: &str) -> Option<Cpu> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, and may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some(Cpu {
        parent: fields.get(1)?.parse().ok()?,
        own_micros: (ticks(11)? + ticks(12)?) * TICK_MICROS,
        children_micros: (ticks(13)? + ticks(14)?) * TICK_MICROS,
    })
}
