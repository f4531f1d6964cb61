//! The alert rules: they are valid for Prometheus, each fires only on its own condition, and each has a fix in the
//! runbook.

use crate::{repository, run, text, tools};
use std::collections::BTreeSet;
use std::process::Command;

const RULES: &str = "docs/operations/alerts.yml";
const STAGED: &str = "docs/operations/alerts_test.yml";

fn named<'a>(file: &'a str, before: &str) -> BTreeSet<&'a str> {
    file.lines()
        .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(before))
        .map(str::trim)
        .collect()
}

#[test]
fn every_alert_is_valid_and_fires() {
    let Some(promtool) = tools::program("promtool") else { return };
    let checked = run(Command::new(&promtool).args(["check", "rules"]).arg(repository(RULES)));
    let count = named(&text(RULES), "alert: ").len();
    assert!(checked.contains(&format!("{count} rules found")), "{checked}");
    run(Command::new(&promtool).args(["test", "rules"]).arg(repository(STAGED)));
}

#[test]
fn every_rule_is_staged_and_has_a_remedy() {
    let (rules, staged, runbook) = (text(RULES), text(STAGED), text("docs/operations/runbook.md"));
    let alerts = named(&rules, "alert: ");
    assert!(alerts.len() > 15, "{alerts:?}");
    assert_eq!(alerts, named(&staged, "alertname: "));
    for alert in alerts {
        assert!(runbook.contains(&format!("\n## {alert}\n")), "{alert} has no fix in the runbook");
        assert!(
            rules.contains(&format!("runbook.md#{}\n", alert.to_lowercase())),
            "{alert} does not link to its fix"
        );
    }
}
