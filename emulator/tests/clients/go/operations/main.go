// Runs every operation of Azure's client for Go and prints a line of JSON for each.
// COSMOS_ENDPOINT and COSMOS_KEY say where; the arguments name a database of its own, and a JSON
// file of queries: what each is, its text, and the results.
package main

import (
	"context"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var (
	always  = context.Background()
	manual  = azcosmos.NewManualThroughputProperties
	byPK    = azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}, Kind: azcosmos.PartitionKeyKindHash, Version: 2}
	keyText = azcosmos.NewPartitionKeyString
)

func main() {
	endpoint, name := os.Getenv("COSMOS_ENDPOINT"), os.Args[1]+"-go"
	key := must(azcosmos.NewKeyCredential(os.Getenv("COSMOS_KEY")))
	client := must(azcosmos.NewClientWithKey(endpoint, key, nil))
	defer client.Close()
	expect(endpoint, client.Endpoint())
	written := "AccountEndpoint=" + endpoint + ";AccountKey=" + os.Getenv("COSMOS_KEY") + ";"
	expect(endpoint, must(azcosmos.NewClientFromConnectionString(written, nil)).Endpoint())
	database := must(client.NewDatabase(name))
	resources(client, database)
	items(database)
	batches(database)
	queries(database, os.Args[2])
	feeds(database)
	keys(client, database)
	throughput(client, database)
	of("delete a database", func() {
		expect(204, must(database.Delete(always, nil)).RawResponse.StatusCode)
		refused(404, second(database.Read(always, nil)))
	})
}

// made returns a container with the partition key /pk.
func made(database *azcosmos.DatabaseClient, name string, options *azcosmos.CreateContainerOptions) *azcosmos.ContainerClient {
	wanted := azcosmos.ContainerProperties{ID: name, PartitionKeyDefinition: byPK}
	must(database.CreateContainer(always, wanted, options))
	return must(database.NewContainer(name))
}

// wide is what gives a container two ranges.
func wide() *azcosmos.CreateContainerOptions {
	given := manual(12_000)
	return &azcosmos.CreateContainerOptions{ThroughputProperties: &given}
}
