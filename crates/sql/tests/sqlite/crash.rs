//! A process that is killed in the middle of everything.

use crate::child::{Part, Playing, command};
use crate::scratch::{Scratch, claimed, finished, id};
use semel_core::store::{Filter, Store as _};

/// That the log is synced, too, is seen by `torture`, which takes back what is not.
#[test]
fn what_a_killed_process_left_in_the_log_is_settled_before_anybody_is_told() {
    // A kill may come right after SQLite has begun the log anew, when nothing is in it.
    let frames = (0..10).map(|_| frames_left_by_a_killed_process());
    assert!(frames.into_iter().any(|frames| frames > 0), "never was anything in the log");
}

fn frames_left_by_a_killed_process() -> i64 {
    let scratch = Scratch::new("unsettled");
    let mut playing = Playing::start(command(Part::Load, &scratch.file(), 0));
    playing.told("acknowledged").expect("it goes on until it is killed");
    playing.kill();
    assert!(!playing.ended());
    let before = std::fs::read(scratch.log()).expect("it left a log");
    assert!(!before.is_empty());

    let outsider = scratch.raw();
    let store = scratch.open();
    let state = |row: &rusqlite::Row<'_>| -> rusqlite::Result<[i64; 3]> {
        Ok([row.get(0)?, row.get(1)?, row.get(2)?])
    };
    let [_, frames, moved] =
        outsider.query_row("PRAGMA wal_checkpoint(NOOP)", [], state).expect("it says how much was moved");
    assert_eq!(frames, moved, "what is in the log stands in the file too");
    drop(store);
    frames
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_before_a_kill_is_there_afterwards() {
    let scratch = Scratch::new("killed");
    // Killed after so many acknowledgements, each time on the file that the last one left.
    for (round, enough) in (0_u64..).zip([1, 40, 300, 1500, 4000]) {
        let first = round * 1_000_000;
        let mut playing = Playing::start(command(Part::Load, &scratch.file(), first));
        let mut acknowledged = Vec::new();
        while acknowledged.len() < enough {
            acknowledged.push(playing.told("acknowledged").expect("it goes on until it is killed"));
        }
        playing.kill();
        // What it told before it died was acknowledged too.
        while let Some(told) = playing.told("acknowledged") {
            acknowledged.push(told);
        }
        assert!(!playing.ended());

        let store = scratch.open();
        for told in &acknowledged {
            let [number, version] = told[..] else { panic!("{told:?}") };
            let reading = store.get(id(number)).await.expect("read");
            let record = reading.record().expect("it was acknowledged");
            assert!(record.version() >= version, "{number}");
        }
        // And what was not acknowledged is whole or not there at all.
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
