//! Unique, typed and hierarchical keys.

use crate::report::{expect, of, refused, Outcome};
use crate::{item, made};
use azure_data_cosmos::clients::DatabaseClient;
use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::models::{ContainerProperties, UniqueKey, UniqueKeyPolicy};
use azure_data_cosmos::options::CreateContainerOptions;
use azure_data_cosmos::PartitionKey;
use futures::TryStreamExt;
use serde_json::{json, Value};

pub async fn run(database: &DatabaseClient) -> Outcome {
    of("unique keys", async {
        let policy = UniqueKeyPolicy::default().with_unique_key(UniqueKey::default().with_path("/n"));
        let properties = ContainerProperties::new("unique", "/pk".into()).with_unique_key_policy(policy);
        let unique = made(database, properties, CreateContainerOptions::default()).await?;
        unique.create_item("p", "a", item("a", "p", 1), None).await?;
        refused(409, unique.create_item("p", "b", item("b", "p", 1), None).await)?;
        unique.create_item("other", "b", item("b", "other", 1), None).await?;
        Ok(())
    })
    .await;
    of("partition keys of each type", async {
        let properties = ContainerProperties::new("typed", "/pk".into());
        let typed = made(database, properties, CreateContainerOptions::default()).await?;
        for (value, key) in [
            (json!(true), PartitionKey::from(true)),
            (json!(1.5), PartitionKey::try_from(1.5)?),
            (json!(7), PartitionKey::from(7)),
            (json!("x"), PartitionKey::from("x")),
            (json!(null), PartitionKey::from(None::<String>)),
        ] {
            typed.create_item(key.clone(), "a", json!({ "id": "a", "pk": value }), None).await?;
            let found: Value = typed.read_item(key, "a", None).await?.into_model()?;
            expect(value, found["pk"].clone())?;
        }
        Ok(())
    })
    .await;
    of("hierarchical partition keys", async {
        let properties = ContainerProperties::new("nested", ("/tenant", "/user", "/session").into());
        let nested = made(database, properties, CreateContainerOptions::default()).await?;
        for i in 0..12 {
            let (id, tenant, user) = (format!("i{i}"), format!("t{}", i % 2), format!("u{}", i % 3));
            let body = json!({ "id": id, "tenant": tenant, "user": user, "session": i });
            nested.create_item((tenant, user, i), &id, body, None).await?;
        }
        let found: Value = nested.read_item(("t1", "u2", 5), "i5", None).await?.into_model()?;
        expect(json!(5), found["session"].clone())
    })
    .await;
    of("query of a prefix of a hierarchical key", async {
        let nested = database.container_client("nested", None).await?;
        let pages = nested.query_items::<Value>("SELECT * FROM c", FeedScope::partition("t1"), None).await?;
        expect(6, pages.try_collect::<Vec<_>>().await?.len())
    })
    .await;
    Ok(())
}
