//! In which order programs run, and which ones beside each other.

use super::Program;

/// How many slots programs share.
pub(super) const SLOTS: usize = 4;

/// What a program does most of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It waits for servers, proxies and timeouts.
    Waits,
    /// It computes. Two of them use both cores of a small machine.
    Computes,
    /// It uses all cores itself, or kills what it tests in the middle of its work: another one would only slow it.
    Alone,
}

impl Kind {
    const fn slots(self) -> usize {
        match self {
            Self::Waits => 1,
            Self::Computes => 2,
            Self::Alone => SLOTS,
        }
    }
}

/// Programs that take long or run alone: package folder, name and kind. They start in this order and before all others,
/// so that no long one is left over at the end; those that run alone are the last to find all slots free.
const KNOWN: &[(&str, &str, Kind)] = &[
    ("crates/gateway", "gateway", Kind::Waits),
    ("crates/redis", "redis", Kind::Waits),
    ("sim", "model", Kind::Computes),
    ("crates/sql", "postgres", Kind::Waits),
    ("crates/gateway", "cli", Kind::Waits),
    ("crates/tx", "transactions", Kind::Waits),
    ("crates/tx", "patterns", Kind::Waits),
    ("sim", "histories", Kind::Alone),
    ("torture", "crash", Kind::Alone),
];

fn place(program: &Program) -> usize {
    let is_it =
        |(package, name, _): &(&str, &str, Kind)| program.package == *package && program.name == *name;
    KNOWN.iter().position(is_it).unwrap_or(KNOWN.len())
}

fn kind(program: &Program) -> Kind {
    let otherwise = if program.name.starts_with("unit tests") { Kind::Computes } else { Kind::Waits };
    KNOWN.get(place(program)).map_or(otherwise, |(_, _, kind)| *kind)
}

/// The programs that have not started, and the slots that are free.
#[derive(Debug)]
pub(super) struct Plan {
    waiting: Vec<Program>,
    free: usize,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Run(Program),
    /// Every program that has not started needs more slots than are free.
    WaitForAnEnd,
    /// All have started.
    Nothing,
}

impl Plan {
    pub(super) fn new(mut programs: Vec<Program>) -> Self {
        programs.sort_by_key(place);
        Self { waiting: programs, free: SLOTS }
    }

    /// The first program for which there is room. It holds its slots until [`Self::ended`].
    pub(super) fn next(&mut self) -> Next {
        if self.waiting.is_empty() {
            return Next::Nothing;
        }
        let fits = |program: &Program| kind(program).slots() <= self.free;
        let Some(at) = self.waiting.iter().position(fits) else { return Next::WaitForAnEnd };
        let program = self.waiting.remove(at);
        self.free -= kind(&program).slots();
        Next::Run(program)
    }

    pub(super) fn ended(&mut self, program: &Program) {
        self.free += kind(program).slots();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    fn program(package: &str, name: &str) -> Program {
        Program {
            package: package.to_owned(),
            name: name.to_owned(),
            file: "a".into(),
            folder: "b".into(),
            arguments: Vec::new(),
        }
    }

    #[test]
    fn every_program_with_a_place_exists() {
        let packages = Workspace::load().unwrap().packages;
        let is_known = |(folder, program, _): &&(&str, &str, Kind)| {
            let package = packages.iter().find(|package| package.directory == *folder);
            package.is_some_and(|package| package.test_programs.iter().any(|name| name == program))
        };
        assert_eq!(KNOWN.iter().find(|entry| !is_known(entry)), None);
    }

    #[test]
    fn waiting_programs_share_the_slots_and_computing_ones_take_two() {
        let gateway = program("crates/gateway", "gateway");
        let (short, units) = (program("crates/http", "http"), program("crates/http", "unit tests"));
        let model = program("sim", "model");
        let all = vec![units.clone(), short.clone(), model.clone(), gateway.clone()];
        let mut plan = Plan::new(all);
        assert_eq!(plan.next(), Next::Run(gateway.clone()), "the longest first");
        assert_eq!(plan.next(), Next::Run(model.clone()));
        assert_eq!(plan.next(), Next::Run(short), "a short one for which there is room");
        assert_eq!(plan.next(), Next::WaitForAnEnd);
        plan.ended(&gateway);
        assert_eq!(plan.next(), Next::WaitForAnEnd);
        plan.ended(&model);
        assert_eq!(plan.next(), Next::Run(units));
        assert_eq!(plan.next(), Next::Nothing);
    }

    #[test]
    fn a_program_that_runs_alone_waits_for_all_others() {
        let (histories, crash) = (program("sim", "histories"), program("torture", "crash"));
        let short = program("crates/http", "http");
        let mut plan = Plan::new(vec![crash.clone(), histories.clone(), short.clone()]);
        assert_eq!(plan.next(), Next::Run(histories.clone()));
        assert_eq!(plan.next(), Next::WaitForAnEnd);
        plan.ended(&histories);
        assert_eq!(plan.next(), Next::Run(crash.clone()));
        assert_eq!(plan.next(), Next::WaitForAnEnd);
        plan.ended(&crash);
        assert_eq!(plan.next(), Next::Run(short));
    }
}
