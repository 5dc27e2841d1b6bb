//! Items one by one, and in batches.

use crate::report::{expect, of, refused, Outcome};
use crate::{item, wide};
use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::models::{ContainerProperties, PatchInstructions, PatchOperation, TimeToLive};
use azure_data_cosmos::options::{
    BatchReadOptions, CreateContainerOptions, ItemReadOptions, ItemWriteOptions, PatchItemOptions,
    PatchStrategy, Precondition,
};
use azure_data_cosmos::TransactionalBatch;
use futures::TryStreamExt;
use serde_json::{json, Value};
use std::time::Duration;

pub async fn run(database: &DatabaseClient) -> Outcome {
    let items = wide(database, "items").await?;
    of("create an item", async {
        items.create_item("p", "a", item("a", "p", 1), None).await?;
        refused(409, items.create_item("p", "a", item("a", "p", 1), None).await)
    })
    .await;
    of("read an item", async {
        expect(json!(1), number(&items, "a").await?)?;
        refused(404, items.read_item("p", "none", None).await)
    })
    .await;
    of("read an item that is unchanged", async {
        let etag = items.read_item("p", "a", None).await?.headers().etag().cloned().ok_or("no etag")?;
        let known = ItemReadOptions::default().with_precondition(Precondition::IfNoneMatch(etag));
        let done = items.read_item("p", "a", Some(known)).await?;
        expect(304, u16::from(done.status().status_code()))
    })
    .await;
    of("read by a session token", async {
        let written = items.upsert_item("p", "later", item("later", "p", 1), None).await?;
        let token = written.headers().session_token().cloned().ok_or("no session token")?;
        let options = ItemReadOptions::default().with_session_token(token.clone());
        items.read_item("p", "later", Some(options)).await?;
        let range = items.feed_range_from_partition_key("p", None).await?.remove(0);
        let newest = items.get_latest_session_token(&[(range.clone(), token.clone())], &range)?;
        expect(token.as_str(), newest.as_str())
    })
    .await;
    of("replace an item", async {
        items.replace_item("p", "a", item("a", "p", 2), None).await?;
        expect(json!(2), number(&items, "a").await?)
    })
    .await;
    of("upsert an item", async {
        for wanted in [201, 200] {
            let done = items.upsert_item("p", "b", item("b", "p", 1), None).await?;
            expect(wanted, u16::from(done.status().status_code()))?;
        }
        Ok(())
    })
    .await;
    of("patch an item", patch(&items)).await;
    of("write under an etag", async {
        let etag = items.read_item("p", "a", None).await?.headers().etag().cloned().ok_or("no etag")?;
        let same = ItemWriteOptions::default().with_precondition(Precondition::IfMatch(etag));
        items.replace_item("p", "a", item("a", "p", 8), Some(same.clone())).await?;
        refused(412, items.replace_item("p", "a", item("a", "p", 9), Some(same.clone())).await)?;
        refused(412, items.delete_item("p", "a", Some(same)).await)
    })
    .await;
    of("delete an item", async {
        items.delete_item("p", "a", None).await?;
        refused(404, items.delete_item("p", "a", None).await)
    })
    .await;
    of("read all items of a key", async {
        items.create_item("key7", "alone", item("alone", "key7", 7), None).await?;
        let scope = FeedScope::partition("key7");
        let found: Vec<Value> = items.query_items("SELECT VALUE c.n FROM c", scope, None).await?.try_collect().await?;
        expect(vec![json!(7)], found)
    })
    .await;
    of("time to live", async {
        let properties = ContainerProperties::new("mortal", "/pk".into()).with_default_ttl(TimeToLive::NoDefault);
        let mortal = crate::made(database, properties, CreateContainerOptions::default()).await?;
        mortal.create_item("p", "a", json!({ "id": "a", "pk": "p", "ttl": 1 }), None).await?;
        tokio::time::sleep(Duration::from_millis(2100)).await;
        refused(404, mortal.read_item("p", "a", None).await)
    })
    .await;
    Ok(())
}

async fn number(items: &ContainerClient, id: &str) -> azure_data_cosmos::Result<Value> {
    let found: Value = items.read_item("p", id, None).await?.into_model()?;
    Ok(found["n"].clone())
}

/// Patches at the server, and as the client does it itself: by a read and a replace.
async fn patch(items: &ContainerClient) -> Outcome {
    for (strategy, wanted) in [(PatchStrategy::ServerSide, 7), (PatchStrategy::ClientSide, 7)] {
        let change = PatchInstructions::new()
            .with_operation(PatchOperation::set("/n", json!(5)))
            .with_operation(PatchOperation::increment("/n", 2))
            .with_operation(PatchOperation::add("/tags", json!(["red", "blue"])))
            .with_operation(PatchOperation::replace("/tags/0", json!("green")))
            .with_operation(PatchOperation::move_value("/tags/1", "/moved"))
            .with_operation(PatchOperation::remove("/tags"));
        let options = PatchItemOptions::default().with_strategy(strategy);
        items.patch_item("p", "a", change, Some(options)).await?;
        expect(json!(wanted), number(items, "a").await?)?;
        let found: Value = items.read_item("p", "a", None).await?.into_model()?;
        expect((json!("blue"), json!(null)), (found["moved"].clone(), found["tags"].clone()))?;
    }
    Ok(())
}

pub async fn batches(database: &DatabaseClient) -> Outcome {
    let items = database.container_client("items", None).await?;
    of("batch", async {
        let batch = TransactionalBatch::new("p")
            .create_item(item("c", "p", 1))?
            .upsert_item(item("d", "p", 1), None)?
            .replace_item("c", item("c", "p", 2), None)?
            .read_item("c", Some(BatchReadOptions::default()))
            .delete_item("b", None);
        let done = items.execute_transactional_batch(batch, None).await?.into_model()?;
        let codes: Vec<_> = done.results().iter().map(|x| x.status_code()).collect();
        expect(vec![201, 201, 200, 200, 204], codes)?;
        let read: Value = done.results()[3].into_model()?.ok_or("nothing was read")?;
        expect(json!(2), read["n"].clone())
    })
    .await;
    of("batch that fails as a whole", async {
        let batch = TransactionalBatch::new("p").create_item(item("e", "p", 1))?.create_item(item("c", "p", 1))?;
        let done = items.execute_transactional_batch(batch, None).await?.into_model()?;
        let codes: Vec<_> = done.results().iter().map(|x| x.status_code()).collect();
        expect(vec![424, 409], codes)?;
        refused(404, items.read_item("p", "e", None).await)
    })
    .await;
    Ok(())
}
