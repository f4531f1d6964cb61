//! Runs steps one after the other, even after a failure, and prints their times and a summary.

use std::fmt;
use std::time::Duration;

use crate::stopwatch::Stopwatch;

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// Not run, for this reason. Never a silent pass: the summary repeats it.
    Skipped(String),
    /// Failed; each line names the place and the fix. Empty if the step's own output does.
    Failed(Vec<String>),
}

struct Step {
    name: &'static str,
    verdict: Verdict,
    duration: Duration,
}

/// The steps run so far.
#[derive(Default)]
pub(crate) struct Report {
    steps: Vec<Step>,
}

impl Report {
    /// Runs a step, prints and remembers its result and duration.
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Verdict) {
        println!("── {name}");
        let stopwatch = Stopwatch::start();
        let verdict = work();
        let duration = stopwatch.read();
        if let Verdict::Failed(lines) = &verdict {
            for line in lines {
                println!("{line}");
            }
        }
        let step = Step { name, verdict, duration };
        println!("{}", step.ending());
        self.steps.push(step);
    }

    /// How many steps failed.
    pub(crate) fn failed(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.verdict, Verdict::Failed(_))).count()
    }

    /// The skipped checks, one line each, for the end of a run.
    pub(crate) fn skipped(&self) -> String {
        let mut lines = String::new();
        for step in &self.steps {
            if let Verdict::Skipped(reason) = &step.verdict {
                lines += &["\nskipped: ", step.name, ": ", reason].concat();
            }
        }
        lines
    }
}

impl Step {
    fn ending(&self) -> String {
        let seconds = format!("{:.1} s", self.duration.as_secs_f64());
        match &self.verdict {
            Verdict::Passed => format!("   ok       {seconds:>8}"),
            Verdict::Skipped(reason) => format!("   skipped  {seconds:>8}  {reason}"),
            Verdict::Failed(lines) if lines.is_empty() => format!("   FAILED   {seconds:>8}"),
            Verdict::Failed(lines) => format!("   FAILED   {seconds:>8}  {} found", lines.len()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: Duration = self.steps.iter().map(|step| step.duration).sum();
        writeln!(f, "── summary")?;
        for step in &self.steps {
            writeln!(f, "{:<14}{}", step.name, step.ending())?;
        }
        write!(f, "{} steps, {} failed, {:.1} s", self.steps.len(), self.failed(), total.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_does_not_stop_the_later_ones() {
        let mut report = Report::default();
        report.step("first", || Verdict::Failed(vec!["a.rs:1: bad".to_owned()]));
        report.step("second", || Verdict::Failed(Vec::new()));
        report.step("third", || Verdict::Passed);
        assert_eq!(report.failed(), 2);
        let summary = report.to_string();
        assert!(summary.contains("first            FAILED"), "{summary}");
        assert!(summary.contains("third            ok"), "{summary}");
    }

    #[test]
    fn a_skipped_step_says_so_and_why() {
        let mut report = Report::default();
        report.step("deny", || Verdict::Skipped("not installed".to_owned()));
        report.step("docs", || Verdict::Passed);
        assert_eq!(report.failed(), 0);
        assert!(report.to_string().contains("not installed"));
        assert_eq!(report.skipped(), "\nskipped: deny: not installed");
    }
}
