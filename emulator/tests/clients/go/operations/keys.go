package main

import (
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func keys(client *azcosmos.Client, database *azcosmos.DatabaseClient) {
	of("unique keys", func() {
		properties := azcosmos.ContainerProperties{ID: "unique", PartitionKeyDefinition: byPK}
		properties.UniqueKeyPolicy = &azcosmos.UniqueKeyPolicy{UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/n"}}}}
		must(database.CreateContainer(always, properties, nil))
		unique := must(database.NewContainer("unique"))
		must(unique.CreateItem(always, keyText("p"), item("a", "p", 1), nil))
		refused(409, second(unique.CreateItem(always, keyText("p"), item("b", "p", 1), nil)))
		must(unique.CreateItem(always, keyText("other"), item("b", "other", 1), nil))
	})
	of("partition keys of each type", func() {
		typed := made(database, "typed", nil)
		for value, key := range map[any]azcosmos.PartitionKey{
			true: azcosmos.NewPartitionKeyBool(true),
			1.5:  azcosmos.NewPartitionKeyNumber(1.5),
			"x":  keyText("x"),
			nil:  azcosmos.NullPartitionKey,
		} {
			must(typed.CreateItem(always, key, text(map[string]any{"id": "a", "pk": value}), nil))
			expect(value, parsed(must(typed.ReadItem(always, key, "a", nil)).Value)["pk"])
		}
		expect(4, len(found(typed, "SELECT * FROM c", whole, nil)))
	})
	nested := must(client.NewContainer(database.ID(), "nested"))
	of("hierarchical partition keys", func() {
		paths := []string{"/tenant", "/isPaid", "/session"}
		properties := azcosmos.ContainerProperties{ID: "nested", PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{
			Paths: paths, Kind: azcosmos.PartitionKeyKindMultiHash, Version: 2,
		}}
		must(database.CreateContainer(always, properties, nil))
		for i := range 12 {
			tenant := fmt.Sprint("t", i%2)
			key := azcosmos.NewPartitionKey().AppendString(tenant).AppendBool(i%3 == 0).AppendNumber(float64(i))
			body := map[string]any{"id": fmt.Sprint("i", i), "tenant": tenant, "isPaid": i%3 == 0, "session": i}
			must(nested.CreateItem(always, key, text(body), nil))
		}
		key := azcosmos.NewPartitionKey().AppendString("t1").AppendBool(false).AppendNumber(5)
		expect(5.0, parsed(must(nested.ReadItem(always, key, "i5", nil)).Value)["session"])
		none := azcosmos.NewPartitionKey().AppendString("t1").AppendBool(false).AppendNull()
		must(nested.CreateItem(always, none, text(map[string]any{"id": "n", "tenant": "t1", "isPaid": false, "session": nil}), nil))
		must(nested.DeleteItem(always, none, "n", nil))
	})
	of("query of a prefix of a hierarchical key", func() {
		prefix := keyText("t1")
		expect(6, len(found(nested, "SELECT * FROM c", prefix, nil)))
	})
}
