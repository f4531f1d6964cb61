//! x
use semel_sim::{bug::Bug, catalogue, explore::{explore, Report}, protocol::Protocol};
fn show(report: Report) {
        if let Some((violation, way)) = report.violation {
            println!("{violation}");
            for (step, world) in way {
                println!("{} {step:?}  {:?}", world.now, world.cells[0].record().map(|r| (r.version(), r.state().clone())));
            }
        }
}
fn main() {
    let arg = std::env::args().nth(1).unwrap();
    let t = |c: &semel_sim::config::Config| { 
        let now = std::time::Instant::now();
        let report = explore(c, Protocol { bug: None });
        println!("{} {} {} {} {} {:?}", c.class, c.name, report.states, report.transitions, report.depth, now.elapsed());
        show(report);
    };
    match arg.as_str() {
        "q" => t(&catalogue::quick()[std::env::args().nth(2).unwrap().parse::<usize>().unwrap()]), "f" => t(&catalogue::full()[std::env::args().nth(2).unwrap().parse::<usize>().unwrap()]),
        "quick" => catalogue::quick().iter().for_each(t),
        "full" => catalogue::full().iter().for_each(t),
        "bugs" => for bug in Bug::ALL {
            let (c, v) = catalogue::showcase(bug);
            let now = std::time::Instant::now();
            let report = explore(&c, Protocol { bug: Some(bug) });
            let got = report.violation.as_ref().map(|x| x.0);
            println!("{bug:?} {} {} {:?} {:?} {}", c.class, c.name, report.states, now.elapsed(), if got == Some(v) { "ok".to_string() } else { format!("WANTED {v:?} GOT {got:?}") });
            if got != Some(v) { show(report); }
        },
        "assume" => for (name, c, v) in catalogue::without_assumptions() {
            let now = std::time::Instant::now();
            let report = explore(&c, Protocol { bug: None });
            let got = report.violation.as_ref().map(|x| x.0);
            println!("{name} {} {} {:?} {:?} {}", c.class, c.name, report.states, now.elapsed(), if got == Some(v) { "ok".to_string() } else { format!("WANTED {v:?} GOT {got:?}") });
            if got != Some(v) { show(report); }
        },
        _ => {}
    }
}
