package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var everything = azcosmos.FeedRange{MinInclusive: "", MaxExclusive: "FF"}

func feeds(database *azcosmos.DatabaseClient) {
	container := made(database, "fed", wide())
	for i := range 20 {
		create(container, fmt.Sprint("i", i), i)
	}
	count := func(wanted int, options azcosmos.ChangeFeedOptions) {
		ids, _ := drained(container, options)
		expect(wanted, len(ids))
	}
	of("feed ranges", func() {
		expect(2, len(must(container.ReadFeedRanges(always, nil))))
	})
	of("change feed from the beginning", func() {
		count(20, azcosmos.ChangeFeedOptions{FeedRange: &everything, MaxItemCount: 3})
	})
	of("change feed of each range", func() {
		total := 0
		for _, one := range must(container.ReadFeedRanges(always, nil)) {
			total += ofRange(container, one)
		}
		expect(20, total)
	})
	of("change feed of a partition key", func() {
		key := keyText("k5")
		count(1, azcosmos.ChangeFeedOptions{FeedRange: &everything, PartitionKey: &key})
	})
	of("change feed from a point in time", func() {
		before := time.Now().Add(-10 * time.Minute)
		count(20, azcosmos.ChangeFeedOptions{FeedRange: &everything, StartFrom: &before})
	})
	of("change feed from now, and on", func() {
		now := time.Now().Add(2 * time.Second) // the first whole second in which nothing has changed
		time.Sleep(time.Until(now))
		ids, on := drained(container, azcosmos.ChangeFeedOptions{FeedRange: &everything, StartFrom: &now})
		expect(0, len(ids))
		for i := range 10 {
			create(container, fmt.Sprint("later", i), i)
		}
		count(10, azcosmos.ChangeFeedOptions{Continuation: &on})
	})
}

func create(container *azcosmos.ContainerClient, id string, n int) {
	key := fmt.Sprint("k", n)
	must(container.CreateItem(always, keyText(key), item(id, key, n), nil))
}

// drained reads until nothing is left, and returns what has changed, and where to go on.
func drained(container *azcosmos.ContainerClient, options azcosmos.ChangeFeedOptions) (map[any]bool, string) {
	ids := map[any]bool{}
	for {
		page := must(container.ReadChangeFeed(always, &options))
		for _, one := range page.Items {
			ids[parsed(one)["id"]] = true
		}
		if page.Count == 0 {
			return ids, page.ContinuationToken
		}
		options.Continuation = &page.ContinuationToken
	}
}

// ofRange counts what has changed in a range, by the older continuation, which knows one range.
func ofRange(container *azcosmos.ContainerClient, one azcosmos.FeedRange) int {
	options, count := azcosmos.ChangeFeedOptions{FeedRange: &one, MaxItemCount: 3}, 0
	for {
		page := must(container.ReadChangeFeed(always, &options))
		low, high, _ := page.GetContinuationRange()
		expect(one, azcosmos.FeedRange{MinInclusive: low, MaxExclusive: high})
		on := must(page.GetCompositeContinuationToken())
		expect(true, strings.Contains(on, strings.Trim(page.GetContinuation(), `"`)))
		if page.Count == 0 {
			return count
		}
		count += page.Count
		options.Continuation = &on
	}
}
