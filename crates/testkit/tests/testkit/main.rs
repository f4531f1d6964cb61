//! Tests of the test kit itself.

mod bites;
mod faults;
mod proxy;
mod proxy_postgres;
mod recorded;
mod workload;
mod wrong;
