//! Runs queries over a container of the database d, and prints a line of JSON for each: its
//! results, or why the client refuses. The arguments are the name of the container, and a JSON
//! file of queries.

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::options::{MaxItemCountHint, QueryOptions};
use futures::TryStreamExt;
use serde_json::{json, Value};
use std::num::NonZeroU32;

const LIMIT: NonZeroU32 = NonZeroU32::new(7).unwrap(); // several pages of each range

#[tokio::main]
async fn main() -> Result<(), strangers::Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let client = strangers::client().await?;
    let items = client.database_client("d").container_client(&arguments[1], None).await?;
    let queries: Vec<String> = serde_json::from_str(&std::fs::read_to_string(&arguments[2])?)?;
    for query in queries {
        let line = match found(&items, query).await {
            Ok(results) => json!({ "results": results }),
            Err(refused) => json!({ "refused": refused.to_string() }),
        };
        println!("{line}");
    }
    Ok(())
}

async fn found(items: &ContainerClient, query: String) -> azure_data_cosmos::Result<Vec<Value>> {
    let options = QueryOptions::default().with_max_item_count(MaxItemCountHint::Limit(LIMIT));
    let scope = FeedScope::full_container();
    items.query_items(query, scope, Some(options)).await?.try_collect().await
}
