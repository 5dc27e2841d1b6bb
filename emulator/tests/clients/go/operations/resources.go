package main

import (
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func resources(client *azcosmos.Client, database *azcosmos.DatabaseClient) {
	name := database.ID()
	of("create and read a database", func() {
		wanted := azcosmos.DatabaseProperties{ID: name}
		must(client.CreateDatabase(always, wanted, nil))
		found := must(database.Read(always, nil))
		expect(name, found.DatabaseProperties.ID)
		refused(409, second(client.CreateDatabase(always, wanted, nil)))
		refused(404, second(must(client.NewDatabase("none")).Read(always, nil)))
		unchanged := azcosmos.ReadDatabaseOptions{IfNoneMatchEtag: &found.ETag}
		expect(304, must(database.Read(always, &unchanged)).RawResponse.StatusCode)
	})
	of("list and query databases", func() {
		named := []azcosmos.QueryParameter{{Name: "@id", Value: name}}
		pages := client.NewQueryDatabasesPager("SELECT * FROM c WHERE c.id = @id",
			&azcosmos.QueryDatabasesOptions{QueryParameters: named})
		found := []string{}
		for pages.More() {
			for _, one := range must(pages.NextPage(always)).Databases {
				found = append(found, one.ID)
			}
		}
		expect([]string{name}, found)
	})
	plain := must(client.NewContainer(name, "plain"))
	of("create and read a container", func() { createContainer(database, plain) })
	of("list and query containers", func() {
		pages := database.NewQueryContainersPager("SELECT * FROM c", nil)
		found := []string{}
		for pages.More() {
			for _, one := range must(pages.NextPage(always)).Containers {
				found = append(found, one.ID)
			}
		}
		expect([]string{"plain"}, found)
	})
	of("replace a container", func() {
		wanted := must(plain.Read(always, nil)).ContainerProperties
		wanted.DefaultTimeToLive = to.Ptr(int32(-1))
		must(plain.Replace(always, *wanted, nil))
		found := must(plain.Read(always, nil)).ContainerProperties
		expect(int32(-1), *found.DefaultTimeToLive)
		expect(wanted.VectorEmbeddingPolicy, found.VectorEmbeddingPolicy)
	})
	of("delete a container", func() {
		must(plain.Delete(always, nil))
		refused(404, second(plain.Read(always, nil)))
	})
}

// createContainer makes one with each policy that the client has, and reads them back.
func createContainer(database *azcosmos.DatabaseClient, plain *azcosmos.ContainerClient) {
	wanted := azcosmos.ContainerProperties{
		ID:                     plain.ID(),
		PartitionKeyDefinition: byPK,
		IndexingPolicy: &azcosmos.IndexingPolicy{
			Automatic:     true,
			IndexingMode:  azcosmos.IndexingModeConsistent,
			IncludedPaths: []azcosmos.IncludedPath{{Path: "/*"}},
			ExcludedPaths: []azcosmos.ExcludedPath{{Path: "/secret/?"}},
			CompositeIndexes: [][]azcosmos.CompositeIndex{{
				{Path: "/a", Order: azcosmos.CompositeIndexAscending},
				{Path: "/b", Order: azcosmos.CompositeIndexDescending},
			}},
			VectorIndexes:   []azcosmos.VectorIndex{{Path: "/v", Type: azcosmos.VectorIndexTypeFlat}},
			FullTextIndexes: []azcosmos.FullTextIndex{{Path: "/words"}},
		},
		UniqueKeyPolicy: &azcosmos.UniqueKeyPolicy{UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/mail"}}}},
		ConflictResolutionPolicy: &azcosmos.ConflictResolutionPolicy{
			Mode: azcosmos.ConflictResolutionModeLastWriteWins, ResolutionPath: "/_ts",
		},
		VectorEmbeddingPolicy: &azcosmos.VectorEmbeddingPolicy{VectorEmbeddings: []azcosmos.VectorEmbedding{{
			Path: "/v", DataType: azcosmos.VectorDataTypeFloat32,
			DistanceFunction: azcosmos.VectorDistanceFunctionCosine, Dimensions: 3,
		}}},
		FullTextPolicy: &azcosmos.FullTextPolicy{
			DefaultLanguage: "en-US",
			FullTextPaths:   []azcosmos.FullTextPath{{Path: "/words", Language: "en-US"}},
		},
	}
	must(database.CreateContainer(always, wanted, nil))
	quota := azcosmos.ReadContainerOptions{PopulateQuotaInfo: true}
	found := must(plain.Read(always, &quota)).ContainerProperties
	expect(wanted.PartitionKeyDefinition, found.PartitionKeyDefinition)
	expect(wanted.UniqueKeyPolicy, found.UniqueKeyPolicy)
	expect(wanted.ConflictResolutionPolicy, found.ConflictResolutionPolicy)
	expect(wanted.VectorEmbeddingPolicy, found.VectorEmbeddingPolicy)
	expect(wanted.FullTextPolicy, found.FullTextPolicy)
	expect(wanted.IndexingPolicy.CompositeIndexes, found.IndexingPolicy.CompositeIndexes)
	expect(wanted.IndexingPolicy.VectorIndexes, found.IndexingPolicy.VectorIndexes)
	refused(409, second(database.CreateContainer(always, wanted, nil)))
}

func throughput(client *azcosmos.Client, database *azcosmos.DatabaseClient) {
	of("read and replace throughput", func() {
		given := manual(500)
		container := made(database, "manual", &azcosmos.CreateContainerOptions{ThroughputProperties: &given})
		found := must(container.ReadThroughput(always, nil))
		expect(int32(500), read(found.ThroughputProperties.ManualThroughput))
		stale := azcosmos.ThroughputOptions{IfMatchEtag: to.Ptr(found.ETag)}
		must(container.ReplaceThroughput(always, manual(700), &stale))
		found = must(container.ReadThroughput(always, nil))
		expect(int32(700), read(found.ThroughputProperties.ManualThroughput))
		expect(false, found.IsReplacePending)
		expect(int32(400), *found.MinThroughput)
		refused(412, second(container.ReplaceThroughput(always, manual(800), &stale)))
	})
	of("autoscale throughput", func() {
		given := azcosmos.NewAutoscaleThroughputProperties(20_000)
		container := made(database, "scaled", &azcosmos.CreateContainerOptions{ThroughputProperties: &given})
		found := must(container.ReadThroughput(always, nil)).ThroughputProperties
		expect(int32(20_000), read(found.AutoscaleMaxThroughput))
		expect(3, len(must(container.ReadFeedRanges(always, nil))))
		given = azcosmos.NewAutoscaleThroughputPropertiesWithIncrement(4_000, 10)
		grows := made(database, "grows", &azcosmos.CreateContainerOptions{ThroughputProperties: &given})
		found = must(grows.ReadThroughput(always, nil)).ThroughputProperties
		expect(int32(10), read(found.AutoscaleIncrement))
	})
	of("throughput of a database", func() {
		name, given := database.ID()+"-shared", manual(600)
		options := azcosmos.CreateDatabaseOptions{ThroughputProperties: &given}
		must(client.CreateDatabase(always, azcosmos.DatabaseProperties{ID: name}, &options))
		shared := must(client.NewDatabase(name))
		found := must(shared.ReadThroughput(always, nil)).ThroughputProperties
		expect(int32(600), read(found.ManualThroughput))
		must(shared.ReplaceThroughput(always, manual(900), nil))
		found = must(shared.ReadThroughput(always, nil)).ThroughputProperties
		expect(int32(900), read(found.ManualThroughput))
		must(shared.Delete(always, nil))
	})
}

func read(part func() (int32, bool)) int32 {
	value, given := part()
	if !given {
		panic(fmt.Sprint("the throughput is of another kind"))
	}
	return value
}
