package main

import (
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func items(database *azcosmos.DatabaseClient) {
	container, p := made(database, "items", wide()), keyText("p")
	number := func(id string) any {
		return parsed(must(container.ReadItem(always, p, id, nil)).Value)["n"]
	}
	of("create an item", func() {
		expect(0, len(must(container.CreateItem(always, p, item("a", "p", 1), nil)).Value))
		shown := azcosmos.ItemOptions{EnableContentResponseOnWrite: true}
		found := must(container.CreateItem(always, p, item("shown", "p", 2), &shown))
		expect(2.0, parsed(found.Value)["n"])
		refused(409, second(container.CreateItem(always, p, item("a", "p", 1), nil)))
	})
	of("read an item", func() {
		expect(1.0, number("a"))
		refused(404, second(container.ReadItem(always, p, "none", nil)))
	})
	of("read by a session token", func() {
		token := must(container.UpsertItem(always, p, item("later", "p", 1), nil)).SessionToken
		must(container.ReadItem(always, p, "later", &azcosmos.ItemOptions{SessionToken: token}))
		weak := azcosmos.ItemOptions{ConsistencyLevel: azcosmos.ConsistencyLevelEventual.ToPtr()}
		must(container.ReadItem(always, p, "later", &weak))
	})
	of("replace an item", func() {
		must(container.ReplaceItem(always, p, "a", item("a", "p", 2), nil))
		expect(2.0, number("a"))
	})
	of("upsert an item", func() {
		for _, wanted := range []int{201, 200} {
			done := must(container.UpsertItem(always, p, item("b", "p", wanted), nil))
			expect(wanted, done.RawResponse.StatusCode)
		}
	})
	of("patch an item", func() { patch(container, p, number) })
	of("patch under a condition", func() {
		change := azcosmos.PatchOperations{}
		change.AppendSet("/n", 0)
		change.SetCondition("FROM c WHERE c.n > 100")
		refused(412, second(container.PatchItem(always, p, "a", change, nil)))
	})
	of("write under an etag", func() {
		etag := must(container.ReadItem(always, p, "a", nil)).ETag
		same := azcosmos.ItemOptions{IfMatchEtag: &etag}
		must(container.ReplaceItem(always, p, "a", item("a", "p", 8), &same))
		refused(412, second(container.ReplaceItem(always, p, "a", item("a", "p", 9), &same)))
		refused(412, second(container.DeleteItem(always, p, "a", &same)))
	})
	of("delete an item", func() {
		must(container.DeleteItem(always, p, "a", nil))
		refused(404, second(container.DeleteItem(always, p, "a", nil)))
	})
	of("read many items", func() {
		wanted := []azcosmos.ItemIdentity{{ID: "none", PartitionKey: p}}
		for i := range 20 {
			id, key := fmt.Sprint("many", i), fmt.Sprint("key", i)
			must(container.CreateItem(always, keyText(key), item(id, key, i), nil))
			wanted = append(wanted, azcosmos.ItemIdentity{ID: id, PartitionKey: keyText(key)})
		}
		expect(20, len(must(container.ReadManyItems(always, wanted, nil)).Items))
	})
	of("read all items of a key", func() {
		expect([]any{7.0}, found(container, "SELECT VALUE c.n FROM c", keyText("key7"), nil))
	})
	of("time to live", func() {
		properties := azcosmos.ContainerProperties{
			ID: "mortal", PartitionKeyDefinition: byPK, DefaultTimeToLive: to.Ptr(int32(-1)),
		}
		must(database.CreateContainer(always, properties, nil))
		mortal := must(database.NewContainer("mortal"))
		body := text(map[string]any{"id": "a", "pk": "p", "ttl": 1})
		must(mortal.CreateItem(always, p, body, nil))
		time.Sleep(2100 * time.Millisecond)
		refused(404, second(mortal.ReadItem(always, p, "a", nil)))
	})
}

func patch(container *azcosmos.ContainerClient, p azcosmos.PartitionKey, number func(string) any) {
	change := azcosmos.PatchOperations{}
	change.AppendSet("/n", 5)
	change.AppendIncrement("/n", 2)
	change.AppendAdd("/tags", []string{"red"})
	change.AppendAdd("/tags/-", "blue")
	change.AppendReplace("/tags/0", "green")
	change.AppendAdd("/short", true)
	change.AppendRemove("/short")
	shown := azcosmos.ItemOptions{EnableContentResponseOnWrite: true}
	found := parsed(must(container.PatchItem(always, p, "a", change, &shown)).Value)
	expect([]any{"green", "blue"}, found["tags"])
	expect(nil, found["short"])
	expect(7.0, number("a"))
}

func batches(database *azcosmos.DatabaseClient) {
	container := must(database.NewContainer("items"))
	codes := func(done azcosmos.TransactionalBatchResponse) []int32 {
		found := []int32{}
		for _, one := range done.OperationResults {
			found = append(found, one.StatusCode)
		}
		return found
	}
	of("batch", func() {
		change := azcosmos.PatchOperations{}
		change.AppendSet("/n", 3)
		batch := container.NewTransactionalBatch(keyText("p"))
		batch.CreateItem(item("c", "p", 1), nil)
		batch.UpsertItem(item("d", "p", 1), nil)
		batch.ReplaceItem("c", item("c", "p", 2), nil)
		batch.PatchItem("d", change, nil)
		batch.ReadItem("d", nil)
		batch.DeleteItem("b", nil)
		done := must(container.ExecuteTransactionalBatch(always, batch, nil))
		expect([]int32{201, 201, 200, 200, 200, 204}, codes(done))
		expect(true, done.Success)
		expect(3.0, parsed(done.OperationResults[4].ResourceBody)["n"])
	})
	of("batch that fails as a whole", func() {
		batch := container.NewTransactionalBatch(keyText("p"))
		batch.CreateItem(item("e", "p", 1), nil)
		batch.CreateItem(item("c", "p", 1), nil)
		done := must(container.ExecuteTransactionalBatch(always, batch, nil))
		expect(false, done.Success)
		expect([]int32{424, 409}, codes(done))
		refused(404, second(container.ReadItem(always, keyText("p"), "e", nil)))
	})
}
