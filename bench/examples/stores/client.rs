//! CPU of this process and of those that it has waited for.

use std::error::Error;

/// The kernel counts in hundredths of a second on every Linux there is.
const TICK_MICROS: f64 = 10_000.0;

/// Microseconds since the process began, those of finished children included.
pub(crate) fn cpu_micros() -> Result<f64, Box<dyn Error>> {
    of_process("self")
        .map(|cpu| cpu.own + cpu.children)
        .ok_or_else(|| "no CPU time in /proc/self/stat".into())
}

pub(crate) struct Cpu {
    pub(crate) parent: u32,
    pub(crate) own: f64,
    /// Those that have ended and were waited for.
    pub(crate) children: f64,
}

/// What a process has used up; `None` if there is no such process.
pub(crate) fn of_process(pid: &str) -> Option<Cpu> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, and may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some(Cpu {
        parent: fields.get(1)?.parse().ok()?,
        own: (ticks(11)? + ticks(12)?) * TICK_MICROS,
        children: (ticks(13)? + ticks(14)?) * TICK_MICROS,
    })
}
