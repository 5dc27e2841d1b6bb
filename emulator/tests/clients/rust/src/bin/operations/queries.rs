//! Queries over two ranges: item i00 to i29, with the keys k0 to k6, and n, or not.

use crate::report::{expect, of, Outcome};
use crate::wide;
use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::options::{MaxItemCountHint, QueryOptions};
use azure_data_cosmos::Query;
use futures::{StreamExt, TryStreamExt};
use serde_json::{json, Value};
use std::collections::HashSet;
use std::num::NonZeroU32;

const FOUR: MaxItemCountHint = MaxItemCountHint::Limit(NonZeroU32::new(4).unwrap());

pub async fn run(database: &DatabaseClient, file: &str) -> Outcome {
    let items = wide(database, "queried").await?;
    for i in 0..30 {
        let (id, pk) = (format!("i{i:02}"), format!("k{}", i % 7));
        let tags = [format!("t{}", i % 2), format!("t{}", i % 3)];
        let mut body = json!({ "id": id, "pk": pk, "tags": tags, "v": [i, 1], "words": format!("w{i} red") });
        if i != 13 {
            body["n"] = json!(i);
        }
        items.upsert_item(pk, &id, body, None).await?;
    }
    let asked: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    for query in &asked {
        let [operation, text] = ["operation", "text"].map(|x| query[x].as_str().unwrap_or_default());
        of(operation, async {
            let found = found(&items, text, FeedScope::full_container()).await?;
            expect(&query["results"], &Value::from(found))
        })
        .await;
    }
    of("query of a partition key", async {
        let top = "SELECT TOP 2 VALUE c.id FROM c ORDER BY c.n DESC";
        expect(vec![json!("i23"), json!("i16")], found(&items, top, FeedScope::partition("k2")).await?)
    })
    .await;
    of("query of a feed range", async {
        let mut seen = HashSet::new();
        for range in items.read_feed_ranges(None).await? {
            for id in found(&items, "SELECT VALUE c.id FROM c", FeedScope::range(range)).await? {
                expect(true, seen.insert(id.to_string()))?;
            }
        }
        expect(30, seen.len())
    })
    .await;
    of("query in pages", paged(&items, "SELECT VALUE c.id FROM c", 30)).await;
    of("query with ORDER BY in pages", paged(&items, "SELECT VALUE c.id FROM c ORDER BY c.pk", 30)).await;
    of("query with TOP in pages", paged(&items, "SELECT TOP 17 VALUE c.id FROM c", 17)).await;
    Ok(())
}

async fn found(items: &ContainerClient, text: &str, scope: FeedScope) -> azure_data_cosmos::Result<Vec<Value>> {
    let query = Query::from(text.to_string()).with_parameter("@n", 4)?;
    items.query_items(query, scope, None).await?.try_collect().await
}

/// Reads page by page, each from the continuation of the one before.
async fn paged(items: &ContainerClient, text: &'static str, wanted: usize) -> Outcome {
    let mut options = QueryOptions::default().with_max_item_count(FOUR);
    let (mut seen, mut pages) = (HashSet::new(), 0);
    loop {
        let scope = FeedScope::full_container();
        let query = items.query_items::<String>(text, scope, Some(options.clone())).await?;
        let mut left = query.into_pages();
        let Some(page) = left.next().await else { break };
        for id in page?.into_items() {
            expect(true, seen.insert(id))?;
        }
        pages += 1;
        options = options.with_continuation_token(left.to_continuation_token()?);
    }
    expect(true, pages > 4)?;
    expect(wanted, seen.len())
}
