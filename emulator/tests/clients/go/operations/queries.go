package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

type query struct {
	Operation string
	Text      string
	Results   []any
}

var whole = azcosmos.NewPartitionKey() // no value: all ranges

func queries(database *azcosmos.DatabaseClient, file string) {
	container := made(database, "queried", wide())
	for i := range 30 {
		body := map[string]any{"id": fmt.Sprintf("i%02d", i), "pk": fmt.Sprint("k", i%7)}
		body["tags"] = []string{fmt.Sprint("t", i%2), fmt.Sprint("t", i%3)}
		body["v"], body["words"] = []int{i, 1}, fmt.Sprintf("w%d red", i)
		if i != 13 {
			body["n"] = i
		}
		must(container.UpsertItem(always, keyText(fmt.Sprint("k", i%7)), text(body), nil))
	}
	var asked []query
	if err := json.Unmarshal(must(os.ReadFile(file)), &asked); err != nil {
		panic(err)
	}
	given := []azcosmos.QueryParameter{{Name: "@n", Value: 4}}
	for _, one := range asked {
		of(one.Operation, func() {
			options := azcosmos.QueryOptions{QueryParameters: given}
			expect(one.Results, found(container, one.Text, whole, &options))
		})
	}
	of("query of a partition key", func() {
		top := "SELECT TOP 2 VALUE c.id FROM c ORDER BY c.n DESC"
		expect([]any{"i23", "i16"}, found(container, top, keyText("k2"), nil))
	})
	of("query in pages", func() {
		seen := map[any]bool{}
		options := azcosmos.QueryOptions{PageSizeHint: 4}
		for {
			page := must(container.NewQueryItemsPager("SELECT c.id FROM c", whole, &options).NextPage(always))
			for _, one := range page.Items {
				expect(false, seen[parsed(one)["id"]])
				seen[parsed(one)["id"]] = true
			}
			if page.ContinuationToken == nil {
				break
			}
			options.ContinuationToken = page.ContinuationToken
		}
		expect(30, len(seen))
	})
}

func found(container *azcosmos.ContainerClient, text string, key azcosmos.PartitionKey, options *azcosmos.QueryOptions) []any {
	results := []any{}
	pages := container.NewQueryItemsPager(text, key, options)
	for pages.More() {
		for _, one := range must(pages.NextPage(always)).Items {
			var value any
			if err := json.Unmarshal(one, &value); err != nil {
				panic(err)
			}
			results = append(results, value)
		}
	}
	return results
}
