//! Finds the known name that is most similar to an unknown one, if they are similar enough.

/// The known name that `unknown` was probably meant to be, if one is similar enough.
pub(super) fn nearest<'k>(unknown: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let near = known.into_iter().map(|name| (distance(unknown, name), name));
    let (far, name) = near.min()?;
    // Every third letter may differ.
    (far <= (unknown.chars().count().max(3)) / 3).then_some(name)
}

/// The number of letters to insert, remove, replace or swap with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut least = (rows[i][j] + usize::from(a != b)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let known = ["ttl", "tombstone", "dedup_window", "lease"];
        for (unknown, meant) in
            [("tll", Some("ttl")), ("tomstone", Some("tombstone")), ("dedup-window", Some("dedup_window"))]
        {
            assert_eq!(nearest(unknown, known), meant, "{unknown}");
        }
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn a_swap_of_neighbours_is_one_slip() {
        assert_eq!(distance("laese", "lease"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
