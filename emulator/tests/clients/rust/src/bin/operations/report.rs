//! How operations are tried, and what is said of them.

use serde_json::json;
use std::fmt::Debug;
use std::future::Future;

pub type Outcome = Result<(), strangers::Failure>;

const REFUSALS: [&str; 2] = ["is not supported by this emulator", "which the calling client does not support"];

/// Tries an operation, and prints how it ended, and why.
pub async fn of(operation: &str, attempt: impl Future<Output = Outcome>) {
    let mut reason = String::new();
    let mut result = "works";
    if let Err(thrown) = attempt.await {
        reason = thrown.to_string().chars().take(1500).collect();
        let is_known = REFUSALS.iter().any(|x| reason.contains(x));
        result = if is_known { "refused" } else { "failed" };
    }
    println!("{}", json!({ "client": "rust", "operation": operation, "result": result, "reason": reason }));
}

pub fn expect<T: PartialEq<U> + Debug, U: Debug>(wanted: T, found: U) -> Outcome {
    if wanted == found {
        return Ok(());
    }
    Err(format!("expected {wanted:?}, found {found:?}").into())
}

/// Wants an answer of this status.
pub fn refused<T>(wanted: u16, done: azure_data_cosmos::Result<T>) -> Outcome {
    match done {
        Ok(_) => Err(format!("expected the status {wanted}, and it worked").into()),
        Err(error) => expect(wanted, u16::from(error.status().status_code())),
    }
}
