//! The smallest and the largest entry.

use crate::records::{claimed, finished, id, is_done};
use crate::world::Keys;
use semel_core::codec;
use semel_core::machine::Unchanged;
use semel_core::store::{Change, Filter, Kind, Store as _, Written};

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_entry_comes_back_and_a_larger_one_is_refused() {
    let Some(keys) = Keys::new() else { return };
    let store = keys.open("&timeout=120").await;
    let max = usize::try_from(store.capabilities().entry_bytes_max).expect("it fits");
    let claim = claimed(1);
    assert!(is_done(&store.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
    // What stands in front of an entry counts as well.
    let largest = finished(&claim, vec![0xa5; max - 4096]);
    let larger = finished(&claim, vec![0xa5; max]);
    assert!(codec::encode_record(&larger).len() > max);
    let refused =
        store.write(id(1), Change::Replace(Unchanged::of(&claim), &larger)).await.expect_err("too large");
    assert_eq!(refused.kind(), Kind::TooLarge, "{refused}");
    assert_eq!(store.get(id(1)).await.expect("an answer").record(), Some(&claim), "nothing was written");
    let written = store.write(id(1), Change::Replace(Unchanged::of(&claim), &largest)).await;
    assert!(is_done(&written.expect("an answer")));
    assert!(store.get(id(1)).await.expect("an answer").record() == Some(&largest), "it comes back as it was");
    let page = store.page(&Filter::default(), None, 10).await.expect("an answer");
    assert!(page.items.len() == 1 && page.items[0].record() == Some(&largest));
    // What refuses a write is shown, however large it is.
    let refused = store.write(id(1), Change::Insert(&claim)).await.expect("an answer");
    assert!(matches!(&refused, Written::Refused(found) if found.record() == Some(&largest)));
}
