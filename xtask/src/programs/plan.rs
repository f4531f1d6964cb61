//! In which order programs run.

use super::Program;

/// Programs that take longest: package folder and name. They start first, so that none of them is left over at the
/// end, when the other lane is empty.
const LONGEST: &[(&str, &str)] = &[
    ("crates/gateway", "gateway"),
    ("sim", "histories"),
    ("crates/redis", "redis"),
    ("sim", "model"),
    ("crates/sql", "postgres"),
];

/// The programs in their order.
pub(super) fn ordered(mut programs: Vec<Program>) -> Vec<Program> {
    let place = |program: &Program| {
        let mut listed = LONGEST.iter();
        listed.position(|(package, name)| program.package == *package && program.name == *name)
    };
    programs.sort_by_key(|program| place(program).unwrap_or(LONGEST.len()));
    programs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn the_longest_programs_exist_and_start_first() {
        let packages = Workspace::load().unwrap().packages;
        let is_known = |(folder, program): &&(&str, &str)| {
            let package = packages.iter().find(|package| package.directory == *folder);
            package.is_some_and(|package| package.test_programs.iter().any(|name| name == program))
        };
        assert_eq!(LONGEST.iter().find(|entry| !is_known(entry)), None);
        let program = |(package, name): &(&str, &str)| Program {
            package: (*package).to_owned(),
            name: (*name).to_owned(),
            file: "a".into(),
            folder: "b".into(),
        };
        let first = LONGEST.iter().map(program);
        let others = [program(&("crates/core", "formats"))];
        let mixed: Vec<_> = others.iter().cloned().chain(first.clone().rev()).collect();
        assert_eq!(ordered(mixed), first.chain(others).collect::<Vec<_>>());
    }
}
