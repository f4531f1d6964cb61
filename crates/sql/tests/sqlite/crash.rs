//! A process that is killed at any moment.

use crate::child::{ChildProcess, Part, command};
use crate::scratch::{Scratch, claimed, finished, id};
use semel_core::store::{Filter, Store as _};

/// That the log is synced before is tested by `torture`, which discards unsynced writes.
#[test]
fn a_killed_processs_log_is_moved_into_the_file_before_the_first_answer() {
    let scratch = Scratch::new("unsettled");
    let mut child = ChildProcess::start(command(Part::Load, &scratch.file(), 0));
    child.next_numbers("acknowledged").expect("it runs until it is killed");
    child.kill();
    assert!(!child.ended());
    let log_bytes = || std::fs::metadata(scratch.log()).map_or(0, |log| log.len());
    assert!(log_bytes() > 0, "it left a log");
    let outsider = scratch.raw();
    let count = || -> i64 {
        outsider.query_row("SELECT count(*) FROM semel_records", [], |row| row.get(0)).expect("counted")
    };
    let before = count();
    assert!(before > 0, "something was acknowledged");
    let store = scratch.open();
    assert_eq!((log_bytes(), count()), (0, before), "the contents of the log are in the file");
    drop(store);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_kill() {
    let scratch = Scratch::new("killed");
    // Killed after this many acknowledgements, each time on the file that the last one left.
    for (round, enough) in (0_u64..).zip([1, 40, 300, 1500, 4000]) {
        let first = round * 1_000_000;
        let mut child = ChildProcess::start(command(Part::Load, &scratch.file(), first));
        let mut acknowledged = Vec::new();
        while acknowledged.len() < enough {
            acknowledged.push(child.next_numbers("acknowledged").expect("it runs until it is killed"));
        }
        child.kill();
        // The last lines before it died were acknowledged too.
        while let Some(numbers) = child.next_numbers("acknowledged") {
            acknowledged.push(numbers);
        }
        assert!(!child.ended());

        let store = scratch.open();
        for numbers in &acknowledged {
            let [number, version] = numbers[..] else { panic!("{numbers:?}") };
            let reading = store.get(id(number)).await.expect("read");
            let record = reading.record().expect("it was acknowledged");
            assert!(record.version() >= version, "{number}");
        }
        // Unacknowledged writes are complete or absent.
        let mut after = None;
        loop {
            let page = store.page(&Filter::default(), after.as_ref(), 1000).await.expect("read");
            for item in &page.items {
                let record = item.record().expect("readable");
                let number = u64::from_be_bytes(item.id.as_bytes()[..8].try_into().expect("eight bytes"));
                let expected = claimed(number);
                assert!(*record == expected || *record == finished(&expected, vec![7; 300]), "{number}");
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(store.verify().await.expect("read"), Vec::<String>::new());
    }
}
