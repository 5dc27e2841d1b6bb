//! Runs every operation of Azure's client for Rust, and prints a line of JSON for each. The
//! arguments name a database of its own, and a JSON file of queries: what each is, its text, and
//! the results.

mod feeds;
mod items;
mod keys;
mod queries;
mod report;
mod resources;

use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::models::{ContainerProperties, ThroughputProperties};
use azure_data_cosmos::options::CreateContainerOptions;
use report::{of, refused, Outcome};
use serde_json::{json, Value};

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().collect();
    let client = strangers::client().await?;
    report::expect(std::env::var("COSMOS_ENDPOINT")?.as_str(), client.endpoint().as_str())?;
    let name = format!("{}-rust", arguments[1]);
    let database = client.database_client(name.clone());
    resources::run(&client, &database, &name).await;
    items::run(&database).await?;
    items::batches(&database).await?;
    queries::run(&database, &arguments[2]).await?;
    feeds::run(&database).await?;
    keys::run(&database).await?;
    resources::throughput(&client, &database, &name).await;
    of("delete a database", async {
        database.delete(None).await?;
        refused(404, database.read(None).await)
    })
    .await;
    Ok(())
}

/// Makes a container with the partition key /pk, of two ranges.
async fn wide(database: &DatabaseClient, id: &'static str) -> Result<ContainerClient, strangers::Failure> {
    let given = ThroughputProperties::manual(12_000);
    let options = CreateContainerOptions::default().with_throughput(given);
    made(database, ContainerProperties::new(id, "/pk".into()), options).await
}

async fn made(
    database: &DatabaseClient,
    properties: ContainerProperties,
    options: CreateContainerOptions,
) -> Result<ContainerClient, strangers::Failure> {
    let id = properties.id.to_string();
    database.create_container(properties, Some(options)).await?;
    Ok(database.container_client(id, None).await?)
}

fn item(id: &str, pk: &str, n: usize) -> Value {
    json!({ "id": id, "pk": pk, "n": n })
}
