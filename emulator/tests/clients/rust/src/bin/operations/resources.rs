//! Databases, containers, throughput.

use crate::report::{expect, of, refused, Outcome};
use azure_data_cosmos::clients::DatabaseClient;
use azure_data_cosmos::models::{
    CompositeIndex, CompositeIndexOrder, CompositeIndexProperty, ConflictResolutionMode,
    ConflictResolutionPolicy, ContainerProperties, FullTextPath, FullTextPolicy, IndexingMode,
    IndexingPolicy, ThroughputProperties, TimeToLive, UniqueKey, UniqueKeyPolicy, VectorDataType,
    VectorDistanceFunction, VectorEmbedding, VectorEmbeddingPolicy, VectorIndex, VectorIndexType,
};
use azure_data_cosmos::options::CreateContainerOptions;
use azure_data_cosmos::{CosmosClient, Query};
use futures::TryStreamExt;

pub async fn run(client: &CosmosClient, database: &DatabaseClient, name: &str) {
    of("create and read a database", async {
        client.create_database(name, None).await?;
        let found = database.read(None).await?.into_model()?;
        expect(Some(name), found.id.as_deref())?;
        expect(Some(name), database.name())?;
        expect(None, database.rid())?;
        expect(&azure_data_cosmos::ResourceIdentity::from(name.to_string()), database.id())?;
        refused(409, client.create_database(name, None).await)?;
        refused(404, client.database_client("none").read(None).await)?;
        let rid = found.system_properties.resource_id.ok_or("no resource id")?;
        let same = client.database_client(azure_data_cosmos::ResourceId::from(rid));
        expect(Some(name), same.read(None).await?.into_model()?.id.as_deref())
    })
    .await;
    of("list and query databases", async {
        let query = Query::from("").with_text("SELECT * FROM c").append_text(" WHERE c.id = @id").with_parameter("@id", name)?;
        let found: Vec<_> = client.query_databases(query, None).await?.try_collect().await?;
        expect(1, found.len())
    })
    .await;
    of("create and read a container", create(database)).await;
    of("list and query containers", async {
        let pages = database.query_containers("SELECT * FROM c", None).await?;
        let found: Vec<_> = pages.try_collect().await?;
        let ids: Vec<_> = found.iter().map(|x| x.id.as_ref()).collect();
        expect(vec!["plain"], ids)
    })
    .await;
    of("replace a container", async {
        let plain = database.container_client("plain", None).await?;
        let wanted = plain.read(None).await?.into_model()?.with_default_ttl(TimeToLive::NoDefault);
        plain.replace(wanted, None).await?;
        let found = plain.read(None).await?.into_model()?;
        expect(TimeToLive::NoDefault, found.default_ttl)
    })
    .await;
    of("delete a container", async {
        let plain = database.container_client("plain", None).await?;
        plain.delete(None).await?;
        refused(404, plain.read(None).await)
    })
    .await;
}

/// Makes a container with each policy that the client has, and reads them back.
async fn create(database: &DatabaseClient) -> Outcome {
    let indexing = IndexingPolicy::default()
        .with_indexing_mode(IndexingMode::Consistent)
        .with_included_path("/*")
        .with_excluded_path("/secret/?")
        .with_composite_index(
            CompositeIndex::default()
                .with_property(CompositeIndexProperty::new("/a", CompositeIndexOrder::Ascending))
                .with_property(CompositeIndexProperty::new("/b", CompositeIndexOrder::Descending)),
        )
        .with_vector_index(VectorIndex::new("/v", VectorIndexType::Flat))
        .with_full_text_index("/words");
    let embedding = VectorEmbedding::new("/v", VectorDataType::Float32, 3, VectorDistanceFunction::Cosine);
    let mail = UniqueKey::default().with_path("/mail");
    let wanted = ContainerProperties::new("plain", "/pk".into())
        .with_indexing_policy(indexing)
        .with_unique_key_policy(UniqueKeyPolicy::default().with_unique_key(mail))
        .with_conflict_resolution_policy(
            ConflictResolutionPolicy::new(ConflictResolutionMode::LastWriterWins).with_resolution_path("/_ts"),
        )
        .with_vector_embedding_policy(VectorEmbeddingPolicy::default().with_embedding(embedding))
        .with_full_text_policy(
            FullTextPolicy::new("en-US").with_full_text_path(FullTextPath::new("/words").with_language("en-US")),
        );
    database.create_container(wanted.clone(), None).await?;
    let found = database.container_client("plain", None).await?.read(None).await?.into_model()?;
    expect(wanted.partition_key.paths(), found.partition_key.paths())?;
    expect(&wanted.unique_key_policy, &found.unique_key_policy)?;
    expect(&wanted.conflict_resolution_policy, &found.conflict_resolution_policy)?;
    expect(&wanted.vector_embedding_policy, &found.vector_embedding_policy)?;
    expect(&wanted.full_text_policy, &found.full_text_policy)?;
    let (asked, held) = (wanted.indexing_policy.clone(), found.indexing_policy);
    expect(asked.map(|x| x.composite_indexes), held.map(|x| x.composite_indexes))?;
    refused(409, database.create_container(wanted, None).await)
}

pub async fn throughput(client: &CosmosClient, database: &DatabaseClient, name: &str) {
    of("read and replace throughput", async {
        let options = CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(500));
        let manual = crate::made(database, ContainerProperties::new("manual", "/pk".into()), options).await?;
        expect(Some(500), manual.read_throughput(None).await?.and_then(|x| x.throughput()))?;
        let given = ThroughputProperties::manual(700);
        let done = manual.begin_replace_throughput(given, None).await?.await?.into_model()?;
        expect(Some(700), done.throughput())?;
        expect(Some(700), manual.read_throughput(None).await?.and_then(|x| x.throughput()))
    })
    .await;
    of("autoscale throughput", async {
        let given = ThroughputProperties::autoscale(20_000, Some(10));
        let options = CreateContainerOptions::default().with_throughput(given);
        let scaled = crate::made(database, ContainerProperties::new("scaled", "/pk".into()), options).await?;
        let found = scaled.read_throughput(None).await?.ok_or("no throughput")?;
        expect((Some(20_000), Some(10)), (found.autoscale_maximum(), found.autoscale_increment()))?;
        expect(3, scaled.read_feed_ranges(None).await?.len())
    })
    .await;
    of("throughput of a database", async {
        let name = format!("{name}-shared");
        let shared = client.database_client(name.clone());
        client.create_database(&name, None).await?;
        expect(true, shared.read_throughput(None).await?.is_none())?;
        let none = shared.begin_replace_throughput(ThroughputProperties::manual(900), None).await;
        expect(true, none.is_err())?; // this client cannot give a database any
        shared.delete(None).await?;
        Ok(())
    })
    .await;
}
