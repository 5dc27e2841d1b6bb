//! How to reach the endpoint: COSMOS_ENDPOINT and COSMOS_KEY of the environment.

use azure_data_cosmos::options::Region;
use azure_data_cosmos::{AccountEndpoint, AccountReference, CosmosClient, RoutingStrategy};

pub type Failure = Box<dyn std::error::Error>;

pub async fn client() -> Result<CosmosClient, Failure> {
    let endpoint: AccountEndpoint = std::env::var("COSMOS_ENDPOINT")?.parse()?;
    let account = AccountReference::with_authentication_key(endpoint, std::env::var("COSMOS_KEY")?);
    let near = RoutingStrategy::ProximityTo(Region::EAST_US);
    Ok(CosmosClient::builder().build(account, near).await?)
}
