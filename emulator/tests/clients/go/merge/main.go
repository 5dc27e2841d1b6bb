// Runs queries over a container of the database d, and prints a line of JSON for each: its results,
// or why the client refuses. COSMOS_ENDPOINT and COSMOS_KEY say where; the arguments are the name of
// the container and a JSON file of queries.
package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

func main() {
	key := must(azcosmos.NewKeyCredential(os.Getenv("COSMOS_KEY")))
	client := must(azcosmos.NewClientWithKey(os.Getenv("COSMOS_ENDPOINT"), key, nil))
	container := must(client.NewContainer("d", os.Args[1]))
	var queries []string
	if err := json.Unmarshal(must(os.ReadFile(os.Args[2])), &queries); err != nil {
		panic(err)
	}
	lines := json.NewEncoder(os.Stdout)
	for _, query := range queries {
		results, err := found(container, query)
		line := map[string]any{"results": results}
		if err != nil {
			line = map[string]any{"refused": err.Error()}
		}
		if err := lines.Encode(line); err != nil {
			panic(err)
		}
	}
}

func found(container *azcosmos.ContainerClient, query string) ([]json.RawMessage, error) {
	options := &azcosmos.QueryOptions{PageSizeHint: 7}
	results := []json.RawMessage{}
	pages := container.NewQueryItemsPager(query, azcosmos.NewPartitionKey(), options)
	for pages.More() {
		page, err := pages.NextPage(context.Background())
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			results = append(results, item)
		}
	}
	return results, nil
}
