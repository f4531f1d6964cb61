//! The alert rules: they are valid for Prometheus, each fires only on its own condition, and each has a fix in the
//! runbook.

use super::{repository, run, text};
use crate::tools;
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

/// The label sets by which a query aggregates: `by (…)` or `without (…)`.
fn aggregations(query: &str) -> Vec<(&str, Vec<&str>)> {
    let words = ["by", "without"];
    let found = words.into_iter().flat_map(|word| {
        query.match_indices(word).filter_map(move |(at, _)| {
            let (labels, _) = query[at + word.len()..].trim_start().strip_prefix('(')?.split_once(')')?;
            Some((word, labels.split(',').map(str::trim).collect()))
        })
    });
    found.collect()
}

#[test]
fn no_rule_and_no_series_of_a_panel_merges_services() {
    let (rules, board) = (text(RULES), text("docs/operations/grafana.json"));
    let aggregated: Vec<_> = aggregations(&rules).into_iter().chain(aggregations(&board)).collect();
    assert!(aggregated.len() > 40, "{aggregated:?}");
    for (word, labels) in &aggregated {
        assert_eq!(labels.contains(&"job"), *word == "by", "{word} {labels:?}");
        // A label that tells services apart beside the job: `by` would drop it, and an alert that names none is lost.
        assert!(!labels.contains(&"namespace") && !labels.contains(&"service"), "{word} {labels:?}");
    }
    assert_eq!(
        aggregations(&rules).iter().filter(|(word, _)| *word == "by").count(),
        0,
        "an alert keeps every other label"
    );
    for bare in ["sum(", "max(", "min(", "avg(", "count("] {
        assert!(!rules.contains(bare), "{bare} merges everything");
    }
    let expected: Vec<_> =
        text(STAGED).lines().filter(|line| line.contains("exp_labels:")).map(str::to_owned).collect();
    assert!(expected.len() > 40 && expected.iter().all(|line| line.contains("job: ")), "{expected:?}");
}
