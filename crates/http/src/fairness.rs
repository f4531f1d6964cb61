//! What is fair between clients that share something of which there is only so much: memory, slots, connections.
//!
//! **What lives here**: who holds how much, and what is reserved for those who hold little. **What must never**: whose
//! share is taken away, and until when; each user of this ledger has promises of its own about that.

use std::collections::HashMap;
use std::hash::Hash;

/// The last part of the whole is for clients that have few.
const RESERVED: usize = 8;
/// A client with less than this part of the whole has few.
const FEW: usize = 64;

/// Whether a client that holds `held` of `total` has few.
pub fn has_few(held: usize, total: usize) -> bool {
    held < (total / FEW).max(1)
}

/// How much of `total` only clients that have few may take.
pub fn reserved(total: usize) -> usize {
    total / RESERVED
}

/// What each client holds. Clients that hold nothing take no memory.
#[derive(Debug)]
pub struct Holdings<Client>(HashMap<Client, usize>);

impl<Client> Default for Holdings<Client> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<Client: Eq + Hash> Holdings<Client> {
    /// What `client` holds.
    pub fn of(&self, client: &Client) -> usize {
        self.0.get(client).copied().unwrap_or_default()
    }

    /// `client` holds `more` than before.
    pub fn add(&mut self, client: Client, more: usize) {
        *self.0.entry(client).or_default() += more;
    }

    /// `client` gives back `less` of what it holds.
    pub fn remove(&mut self, client: &Client, less: usize) {
        if let Some(held) = self.0.get_mut(client) {
            *held -= less;
            if *held == 0 {
                self.0.remove(client);
            }
        }
    }

    /// Whether nobody holds anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_hold_nothing_are_forgotten() {
        let mut holdings = Holdings::default();
        holdings.add("a", 3);
        holdings.add("b", 1);
        holdings.remove(&"a", 2);
        assert_eq!((holdings.of(&"a"), holdings.of(&"b"), holdings.of(&"c")), (1, 1, 0));
        holdings.remove(&"a", 1);
        holdings.remove(&"b", 1);
        holdings.remove(&"c", 1);
        assert!(holdings.is_empty());
    }

    #[test]
    fn the_last_eighth_is_for_clients_with_less_than_a_sixty_fourth() {
        assert_eq!(reserved(128), 16);
        assert!(has_few(1, 128) && !has_few(2, 128));
        assert!(has_few(0, 4) && !has_few(1, 4), "everybody may have one");
        assert_eq!(reserved(4), 0);
    }
}
