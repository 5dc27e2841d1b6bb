//! The change feed, pulled.

use crate::report::{expect, of, Outcome};
use crate::{item, wide};
use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::feed::{ContinuationToken, FeedScope};
use azure_data_cosmos::models::ChangeFeedOperationType;
use azure_data_cosmos::options::{ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom};
use futures::StreamExt;
use serde_json::Value;
use std::collections::HashSet;
use std::time::{Duration, SystemTime};

type Changes = Vec<(Option<ChangeFeedOperationType>, String)>;

pub async fn run(database: &DatabaseClient) -> Outcome {
    let items = wide(database, "fed").await?;
    for i in 0..20 {
        create(&items, &format!("i{i}"), i).await?;
    }
    of("feed ranges", async { expect(2, items.read_feed_ranges(None).await?.len()) }).await;
    of("change feed from the beginning", async {
        expect(20, count(&items, FeedScope::full_container(), ChangeFeedStartFrom::Beginning).await?)
    })
    .await;
    of("change feed of each range", async {
        let mut total = 0;
        for range in items.read_feed_ranges(None).await? {
            total += count(&items, FeedScope::range(range), ChangeFeedStartFrom::Beginning).await?;
        }
        expect(20, total)
    })
    .await;
    of("change feed of a partition key", async {
        expect(1, count(&items, FeedScope::partition("k5"), ChangeFeedStartFrom::Beginning).await?)
    })
    .await;
    of("change feed from a point in time", async {
        let before = ChangeFeedStartFrom::PointInTime((SystemTime::now() - Duration::from_secs(600)).into());
        expect(20, count(&items, FeedScope::full_container(), before).await?)
    })
    .await;
    of("change feed from now, and on", async {
        let (found, on) = drained(&items, ChangeFeedOptions::default()).await?;
        expect(0, found.len())?;
        for i in 0..10 {
            create(&items, &format!("later{i}"), i).await?;
        }
        let on = ChangeFeedOptions::default().with_continuation_token(on);
        expect(10, drained(&items, on).await?.0.len())
    })
    .await;
    of("change feed of all versions and deletes", async {
        let all = || ChangeFeedOptions::default().with_mode(ChangeFeedMode::AllVersionsAndDeletes);
        let (_, on) = drained(&items, all()).await?;
        create(&items, "short", 1).await?;
        items.upsert_item("k1", "short", item("short", "k1", 2), None).await?;
        items.delete_item("k1", "short", None).await?;
        let (found, _) = drained(&items, all().with_continuation_token(on)).await?;
        let kinds: Vec<_> = found.into_iter().map(|(kind, _)| kind).collect();
        use ChangeFeedOperationType::{Create, Delete, Replace};
        expect(vec![Some(Create), Some(Replace), Some(Delete)], kinds)
    })
    .await;
    Ok(())
}

async fn create(items: &ContainerClient, id: &str, n: usize) -> Outcome {
    let pk = format!("k{n}");
    items.create_item(pk.clone(), id, item(id, &pk, n), None).await?;
    Ok(())
}

async fn count(items: &ContainerClient, scope: FeedScope, from: ChangeFeedStartFrom) -> Result<usize, strangers::Failure> {
    let (found, _) = drained_from(items, scope, from, ChangeFeedOptions::default()).await?;
    let ids: HashSet<_> = found.iter().map(|(_, id)| id).collect();
    expect(found.len(), ids.len())?;
    Ok(ids.len())
}

async fn drained(items: &ContainerClient, options: ChangeFeedOptions) -> Result<(Changes, ContinuationToken), strangers::Failure> {
    drained_from(items, FeedScope::full_container(), ChangeFeedStartFrom::Now, options).await
}

/// Reads until each range has nothing, and returns what has changed, and where to go on.
async fn drained_from(
    items: &ContainerClient,
    scope: FeedScope,
    from: ChangeFeedStartFrom,
    options: ChangeFeedOptions,
) -> Result<(Changes, ContinuationToken), strangers::Failure> {
    let mut pages = items.query_change_feed::<Value>(scope, from, Some(options)).await?;
    let (mut found, mut empty) = (Changes::new(), 0);
    while empty < 4 {
        let page = pages.next().await.ok_or("the feed has ended")??;
        empty = if page.items().is_empty() { empty + 1 } else { 0 };
        for change in page.items() {
            let is_gone = change.operation_type() == Some(ChangeFeedOperationType::Delete);
            let shown = if is_gone { change.previous() } else { change.current() };
            let id = shown.map(|x| x["id"].to_string()).unwrap_or_default();
            found.push((change.metadata().and(change.operation_type()), id));
        }
    }
    Ok((found, pages.to_continuation_token()?))
}
